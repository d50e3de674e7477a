"""Every page in a real browser: it shows what is there, runs nothing that was sent, asks no other host."""

from __future__ import annotations

import pytest

from console.conftest import DRILL, LISTENER_KEY, SENDER_KEY, Scene, appears
from support.browser import click, tab

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

EVIL = "<script>window.hit=1</script><img src=x onerror=window.hit=2>\"'&"


class TestSigningIn:
    async def test_the_root_sends_a_browser_to_the_console_and_a_program_to_the_interface(self, scene: Scene) -> None:
        async with tab(scene.browser, f"http://127.0.0.1:{scene.primary.http_port}/") as opened:
            assert "/$console/sign-in" in opened.page.url
            assert await opened.page.title() == "Sign in · Twinbus"
        status, _ = scene.primary.request("GET", "/$namespaceinfo?api-version=2021-05")
        assert status == 200
        assert scene.primary.request("GET", "/")[0] != 303

    async def test_a_wrong_key_is_refused_and_not_shown_again(self, scene: Scene) -> None:
        async with tab(scene.browser, scene.url("sign-in")) as opened:
            await opened.page.fill("[name=key]", "not-the-key")
            await click(opened.page, "button.main")
            assert "not right" in await opened.page.inner_text(".notice.bad")
            assert "not-the-key" not in await opened.page.content()
            await opened.page.goto(scene.url("entities"))
            assert "/sign-in" in opened.page.url

    async def test_a_policy_that_may_only_send_sees_nothing(self, scene: Scene) -> None:
        async with tab(scene.browser, scene.url("sign-in")) as opened:
            await opened.page.fill("[name=policy]", "sender")
            await opened.page.fill("[name=key]", SENDER_KEY)
            await click(opened.page, "button.main")
            assert "neither manage nor listen" in await opened.page.inner_text(".notice.bad")

    async def test_whoever_may_only_listen_looks_and_changes_nothing(self, scene: Scene) -> None:
        scene.primary.create_queue("read-only")
        async with scene.visitor("entity?name=read-only", policy="listener", key=LISTENER_KEY) as opened:
            assert "read-only" in await opened.page.inner_text("header")
            assert await opened.page.locator("button.danger").count() == 0
            await opened.page.goto(scene.url("entities"))
            assert await opened.page.locator("text=New queue or topic").count() == 0
            token = await opened.page.get_attribute("header input[name=token]", "value")
            answer = await opened.page.request.post(
                scene.url("entity/delete"),
                form={"token": token or "", "name": "read-only", "confirm": "read-only"},
                headers={"Origin": f"http://127.0.0.1:{scene.primary.http_port}"},
            )
            assert answer.status == 403
        assert scene.primary.queue("read-only")

    async def test_after_signing_out_the_cookie_opens_nothing(self, scene: Scene) -> None:
        async with scene.visitor("entities") as opened:
            (cookie,) = await opened.page.context.cookies()
            assert cookie["httpOnly"]
            assert cookie["sameSite"] == "Strict"
            await click(opened.page, "text=Sign out")
            await opened.page.context.add_cookies([cookie])  # type: ignore[list-item]
            await opened.page.goto(scene.url("entities"))
            assert "/sign-in" in opened.page.url


class TestOtherOrigins:
    async def test_a_form_from_elsewhere_is_refused(self, scene: Scene) -> None:
        async with scene.visitor("entities") as opened:
            token = await opened.page.get_attribute("header input[name=token]", "value")
            form = {"token": token or "", "kind": "queue", "name": "made-by-others"}
            elsewhere: list[dict[str, str]] = [
                {"Origin": "http://evil.example"},
                {"Origin": f"http://127.0.0.1:{scene.secondary.http_port}"},
                {"Origin": "null"},
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
                {},
            ]
            for headers in elsewhere:
                answer = await opened.page.request.post(scene.url("entity/create"), form=form, headers=headers)
                assert answer.status == 403, headers
        assert scene.api("GET", "entities?name=made-by-others")["total"] == 0

    async def test_a_form_without_the_pages_token_is_refused(self, scene: Scene) -> None:
        async with scene.visitor("entities") as opened:
            answer = await opened.page.request.post(
                scene.url("entity/create"),
                form={"token": "guessed", "kind": "queue", "name": "made-by-others"},
                headers={"Origin": f"http://127.0.0.1:{scene.primary.http_port}"},
            )
            assert answer.status == 403
            assert "not of this console" in await answer.text()

    async def test_pages_forbid_scripts_frames_and_caches(self, scene: Scene) -> None:
        async with scene.visitor("entities") as opened:
            answer = await opened.page.request.get(scene.url("entities"))
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["cache-control"] == "no-store"


class TestPages:
    async def test_nothing_that_was_sent_is_run_and_no_other_host_is_asked(self, scene: Scene) -> None:
        name = scene.primary.create_queue("evil", DeadLetteringOnMessageExpiration="true", UserMetadata=EVIL)
        scene.expire(name, [EVIL, '{"a": "</pre><script>window.hit=3</script>"}'], user={EVIL: EVIL})
        record = {"kind": "paired-client", "pair": "contoso", "host": EVIL, "process": 1,
                  "state": {"ill": {EVIL: "failed over"}, "ill_count": 1, "diverted": 3}}  # fmt: skip
        scene.api("PUT", "clients/evil", record)
        pages = {
            "pair": "clients",
            f"entity?name={name}": "Settings",
            f"messages?entity={name}&sub_queue=dead-letter": "TTLExpiredException",
            f"message?entity={name}&sub_queue=dead-letter&number=1": "<script>window.hit=1</script>",
            f"message?entity={name}&sub_queue=dead-letter&number=2&view=text": "window.hit=3",
            "system?error=%3Cscript%3Ewindow.hit%3D4%3C/script%3E": "Refused lately",
            "incidents": "<script>window.hit=5</script>",
            "incident?id=aa11": "<script>window.hit=5</script>",
            f"drill?id={DRILL}": "<script>window.hit=5</script>",
        }
        try:
            async with scene.visitor() as opened:
                for page, words in pages.items():
                    await opened.page.goto(scene.url(page))
                    assert words in await opened.page.inner_text("body"), page
                    assert await opened.page.evaluate("window.hit") is None, page
                await opened.page.goto(scene.url("pair"))
                await appears(opened.page, "main", "diverts")
                assert await opened.page.evaluate("window.hit") is None
        finally:
            scene.api("DELETE", "clients/evil")
        assert scene.hosts == {f"127.0.0.1:{scene.primary.http_port}"}

    async def test_pages_can_be_read_without_scripts(self, scene: Scene) -> None:
        scene.primary.create_queue("plain-html")
        async with scene.visitor("entities?filter=plain-html", java_script_enabled=False) as opened:
            assert "plain-html" in await opened.page.inner_text("table")
            await opened.page.goto(scene.url("pair"))
            assert "PRIMARY" in await opened.page.inner_html("svg.picture")

    async def test_what_is_not_there_is_said_and_no_file_of_the_broker_is_served(self, scene: Scene) -> None:
        async with scene.visitor("no-such-page") as opened:
            assert "There is no such page" in await opened.page.inner_text("main")
            answer = await opened.page.request.get(scene.url("static/%2e%2e/site.py"))
            assert answer.status == 404
            opened.problems.clear()  # The browser says that one answer was 404.


class TestEntities:
    async def test_a_queue_is_made_changed_and_deleted(self, scene: Scene) -> None:
        async with scene.visitor("new") as opened:
            page = opened.page
            await page.fill("[name=name]", "by-hand")
            await page.check("[name=RequiresSession]")
            await click(page, "text=Create")
            assert await page.inner_text("h1") == "by-hand"
            assert scene.primary.queue("by-hand")["RequiresSession"] == "true"
            await page.fill("[name=MaxDeliveryCount]", "3")
            await page.fill("[name=LockDuration]", "PT1M")
            await click(page, "text=Change")
            assert scene.primary.queue("by-hand")["MaxDeliveryCount"] == "3"
            assert scene.primary.queue("by-hand")["LockDuration"] == "PT1M"
            assert scene.primary.queue("by-hand")["RequiresSession"] == "true"
            await page.fill("[name=confirm]", "by-han")
            await click(page, "button.danger")
            assert "Nothing was done" in await page.inner_text("main")
            assert scene.primary.queue("by-hand")
            await page.goto(scene.url("entity?name=by-hand"))
            await page.fill("[name=confirm]", "by-hand")
            await click(page, "button.danger")
            await page.wait_for_url("**/entities")
            opened.problems.clear()  # The browser says that one answer was 400.
        assert scene.api("GET", "entities?name=by-hand")["total"] == 0

    async def test_what_is_wrong_is_said_beside_what_was_typed(self, scene: Scene) -> None:
        async with scene.visitor("new") as opened:
            await opened.page.fill("[name=name]", "not a name")
            await click(opened.page, "text=Create")
            assert "is not an entity name" in await opened.page.inner_text(".notice.bad")
            assert await opened.page.input_value("[name=name]") == "not a name"
            opened.problems.clear()

    async def test_the_list_is_paged_filtered_and_alive(self, scene: Scene) -> None:
        for at in range(55):
            scene.primary.create_queue(f"paged-{at:02}")
        async with scene.visitor("entities?filter=paged-") as opened:
            page = opened.page
            assert await page.locator("tbody tr").count() == 50
            await click(page, "text=More")
            assert await page.locator("tbody tr").count() == 5
            scene.send("paged-54", ["one", "two"])
            await appears(page, "tbody tr td:nth-child(2)", "2")
            await page.goto(scene.url("entities?filter=paged-&only=messages"))
            await appears(page, "tbody tr", "paged-54")
            assert await page.locator("tbody tr").count() == 1

    async def test_both_namespaces_are_side_by_side(self, scene: Scene) -> None:
        scene.primary.create_queue("twin")
        scene.secondary.create_queue("twin", RequiresSession="true")
        async with scene.visitor("entities?side=both&filter=twin") as opened:
            for _ in range(100):  # A page waits for the other one for 300 ms: who sees no answer yet looks again.
                row = await opened.page.inner_text("tbody tr")
                if "requires_session" in row:
                    break
                await opened.page.reload()
            assert "requires_session" in row
            heads = await opened.page.inner_text("thead")
            assert "contoso" in heads
            assert "fabrikam" in heads


class TestMessages:
    async def test_a_body_is_shown_as_text_json_and_bytes(self, scene: Scene) -> None:
        name = scene.primary.create_queue("bodies")
        scene.send(name, ['{"order":{"number":7}}'])
        async with scene.visitor(f"message?entity={name}&number=1") as opened:
            assert '"number": 7' in await opened.page.inner_text("pre")
            await click(opened.page, "nav.tabs >> text=hex")
            assert "7b 22 6f 72" in await opened.page.inner_text("pre")
        assert scene.primary.count(name) == 1

    async def test_a_thousand_dead_letters_go_back_by_a_condition(self, scene: Scene) -> None:
        name = scene.primary.create_queue("thousand", DeadLetteringOnMessageExpiration="true")
        scene.expire(name, [str(at) for at in range(1000)])
        async with scene.visitor(f"messages?entity={name}&sub_queue=dead-letter") as opened:
            page = opened.page
            assert "1,000" in await page.inner_text("section >> nth=0")
            await page.fill("[name=filter]", "number < 900")
            await click(page, "form.controls button")
            await click(page, "text=Send back…")
            await appears(page, "main", "900 of 1,000")
            await page.fill("[name=confirm]", name)
            await click(page, "button.main")
            assert await page.locator("#progress progress").get_attribute("max") == "1000"
            await appears(page, "main", "900 sent back")
            assert "100 stay" in await page.inner_text("#progress")
            assert await page.locator("#progress progress").get_attribute("value") == "1000"
            assert scene.primary.count(name) + scene.primary.count(name, "DeadLetterMessageCount") == 1000
            await click(page, "text=Back to the messages")
            await click(page, "text=Remove…")
            await appears(page, "main", "100 of 100")
            await page.fill("[name=confirm]", name)
            await click(page, "button.danger")
            await appears(page, "main", "100 removed")
            assert await page.locator("#progress progress").get_attribute("value") == "100"
        assert scene.primary.count(name, "DeadLetterMessageCount") == 0
        assert scene.primary.count(name) == 900

    async def test_a_dead_letter_is_sent_again_edited_and_then_removed(self, scene: Scene) -> None:
        name = scene.primary.create_queue("again", DeadLetteringOnMessageExpiration="true")
        scene.expire(name, ["wrong", "other"])
        async with scene.visitor(f"message?entity={name}&sub_queue=dead-letter&number=1") as opened:
            await opened.page.fill("textarea[name=body]", "right")
            await click(opened.page, "text=Send >> nth=-1")
            await appears(opened.page, "main", "1 removed")
        found = scene.api("GET", f"messages?entity={name}")["messages"]
        assert [message["message_id"] for message in found] == ["again-0"]
        assert found[0]["body"] == "cmlnaHQ="
        assert "DeadLetterReason" not in found[0]["application_properties"]
        assert scene.primary.count(name, "DeadLetterMessageCount") == 1


class TestPolicies:
    async def test_a_policy_is_added_changed_rotated_and_removed(self, scene: Scene) -> None:
        async with scene.visitor("policies") as opened:
            page = opened.page
            rows = await page.inner_text("tbody")
            assert "RootManageSharedAccessKey" in rows
            assert "first start" in rows
            assert "configuration file" in rows
            await page.fill("[name=name]", "shop")
            await page.check("[name=Send]")
            await click(page, "text=Add")
            assert await page.inner_text("h1") == "shop"
            made = scene.api("GET", "policies/shop")
            assert (made["rights"], made["came_from"]) == (["Send"], "api")
            assert made["primary_key"] not in await page.content()
            await click(page, "text=Show the keys")
            shown = await page.inner_text("main")
            assert made["primary_key"] in shown
            assert made["secondary_key"] in shown
            await page.check("[name=Listen]")
            await click(page, "text=Change")
            assert scene.api("GET", "policies/shop")["rights"] == ["Send", "Listen"]
            assert made["primary_key"] not in await page.content()
            await page.fill("form[action$=rotate] [name=confirm]", "shop")
            await click(page, "form[action$=rotate] button")
            assert scene.api("GET", "policies/shop")["secondary_key"] == made["primary_key"]
            await page.fill("form[action$=remove] [name=confirm]", "sho")
            await click(page, "form[action$=remove] button")
            assert "Nothing was done" in await page.inner_text(".notice.bad")
            await page.fill("form[action$=remove] [name=confirm]", "shop")
            await click(page, "form[action$=remove] button")
            await page.wait_for_url("**/policies")
            assert "shop" not in await page.inner_text("tbody")
            opened.problems.clear()  # The browser says that one answer was 400.
        assert len(scene.api("GET", "policies")["policies"]) == 3

    async def test_what_the_settings_say_is_not_offered_for_change(self, scene: Scene) -> None:
        async with scene.visitor("policy?name=listener") as opened:
            page = opened.page
            assert await page.locator("form[action$=rights], form[action$=remove]").count() == 0
            assert await page.locator("[name=key] option").all_inner_texts() == [
                "A new secondary key; the old one is refused at once"
            ]
            await page.goto(scene.url("policies"))
            await page.fill("[name=name]", "LISTENER")
            await page.check("[name=Manage]")
            await click(page, "text=Add")
            assert "has a policy 'LISTENER' already" in await page.inner_text(".notice.bad")
            assert await page.input_value("[name=name]") == "LISTENER"
            assert await page.is_checked("[name=Manage]")
            opened.problems.clear()

    async def test_whoever_rotates_his_own_key_away_stays_signed_in(self, scene: Scene) -> None:
        own = scene.api("POST", "policies", {"name": "own", "rights": ["Manage"]})
        try:
            async with scene.visitor("policy?name=own", policy="own", key=own["primary_key"]) as opened:
                page = opened.page
                await page.select_option("[name=key]", "primary")
                await page.fill("form[action$=rotate] [name=confirm]", "own")
                await click(page, "form[action$=rotate] button")
                await page.goto(scene.url("policies"))
                assert "configuration file" in await page.inner_text("tbody")
        finally:
            scene.api("DELETE", "policies/own")

    async def test_it_is_for_those_who_manage(self, scene: Scene) -> None:
        async with scene.visitor("policies", policy="listener", key=LISTENER_KEY) as opened:
            assert "for those who manage" in await opened.page.inner_text("main")
            opened.problems.clear()  # The browser says that one answer was 403.


class TestSystem:
    async def test_stores_connections_and_refusals_are_told_and_no_key(self, scene: Scene) -> None:
        status, text = scene.primary.request("GET", "/no-such-queue?api-version=2021-05")
        assert status == 404
        tracking_id = text.partition("TrackingId:")[2].partition(",")[0]
        async with scene.visitor(f"system?error={tracking_id}") as opened:
            shown = await opened.page.inner_text("main")
            assert "no-such-queue" in shown
            assert "listener" in shown
            assert LISTENER_KEY not in await opened.page.content()
            assert scene.primary.key not in await opened.page.content()

    async def test_a_fault_is_begun_and_lifted(self, scene: Scene) -> None:
        async with scene.visitor("system") as opened:
            page = opened.page
            await page.select_option("[name=fault]", "throttled")
            await page.fill("[name=confirm]", "contoso")
            await click(page, "text=Begin")
            assert [fault["name"] for fault in scene.api("GET", "faults")["faults"]] == ["throttled"]
            await click(page, "text=Lift")
            assert scene.api("GET", "faults")["faults"] == []
