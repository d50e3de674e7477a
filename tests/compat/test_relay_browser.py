"""A browser's own WebSocket and fetch through the relay: a page in Chromium talks to our listener and to hyco-ws.

The page is served by a server of its own, so that the relay is another origin to it, as it would be.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from support.broker import ROOT_POLICY, SOON_S, BrokerProcess
from support.browser import Tab, browser, tab
from support.ports import free_ports
from support.relay_node import NodeListener, relay_environment
from twinbus.broker.certs import make_certificates
from twinbus.relay import RelayedRequest, RelayedResponse, RelayEndpoint, RelayListener
from twinbus.wire.sas import make_token

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.feature("relay"), pytest.mark.asyncio(loop_scope="module")]

OURS, HYCO, NOBODY, OPEN = "service", "ws-service", "nobody", "open"
CONFIG = "".join(f'[[hybrid_connections]]\nName = "{name}"\n' for name in (OURS, HYCO, NOBODY, "http-service"))
CONFIG += f'[[hybrid_connections]]\nName = "{OPEN}"\nRequiresClientAuthorization = false\n'
PAGE = """<!doctype html><meta charset="utf-8"><title>page</title><link rel="icon" href="data:,"><script>
const digest = async (data) => {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  return Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))).join();
};
const filled = (size) => {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 65536) crypto.getRandomValues(bytes.subarray(at, at + 65536));
  return bytes;
};
// Sends each message when the one before has come back, and closes; says whether all came back as they were.
const talk = (url, messages, protocols = []) => new Promise((resolve) => {
  const socket = new WebSocket(url, protocols);
  const seen = { equal: 0, kinds: [], errors: 0 };
  socket.binaryType = "arraybuffer";
  socket.onopen = () => { seen.protocol = socket.protocol; socket.send(messages[0]); };
  socket.onmessage = async ({ data }) => {
    seen.kinds.push(typeof data === "string" ? "text" : "binary");
    const sent = messages[seen.kinds.length - 1];
    const next = messages[seen.kinds.length];
    if (typeof data === typeof sent) seen.equal += await digest(data) === await digest(sent);
    if (next === undefined) socket.close(4002); else socket.send(next);
  };
  socket.onerror = () => { seen.errors += 1; };
  socket.onclose = ({ code, reason, wasClean }) => resolve({ ...seen, code, reason, wasClean });
});
</script>"""


class Scene:
    """A relay with listeners of both kinds, a page's server, and what the listener of ours saw."""

    def __init__(self, broker: BrokerProcess, https_port: int, page_url: str) -> None:
        self.broker = broker
        self.https_port = https_port
        self.page_url = page_url
        self.seen: asyncio.Queue[tuple[Mapping[str, str], int | None]] = asyncio.Queue()

    @property
    def host(self) -> str:
        return f"{self.broker.host}:{self.broker.http_port}"

    def endpoint(self, path: str) -> RelayEndpoint:
        return RelayEndpoint(f"http://{self.host}/{path}", ROOT_POLICY, self.broker.key)

    def token(self, path: str, key: str | None = None) -> str:
        token = make_token(
            f"http://{self.broker.host}/{path}", ROOT_POLICY, key or self.broker.key, int(time.time()) + 300
        )
        return quote(token, safe="")

    def socket_url(self, path: str, below: str = "", key: str | None = None) -> str:
        return f"ws://{self.host}/$hc/{path}{below}?sb-hc-action=connect&sb-hc-token={self.token(path, key)}"

    async def echo(self, socket: aiohttp.ClientWebSocketResponse, headers: Mapping[str, str]) -> None:
        """Echoes; some texts ask for an end."""
        async for message in socket:
            if message.data == "close":
                await socket.close(code=4001, message=b"said the service")
            elif message.data == "vanish":
                assert socket._response.connection is not None
                assert socket._response.connection.transport is not None
                socket._response.connection.transport.abort()
            elif message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data)
            else:
                await socket.send_bytes(message.data)
        self.seen.put_nowait((headers, socket.close_code))

    async def answer(self, request: RelayedRequest) -> RelayedResponse:
        """A service that lets pages of other origins in, and says what it was asked."""
        allowed = [
            ("Access-Control-Allow-Origin", request.headers.get("Origin", "")),
            ("Access-Control-Allow-Methods", "PUT"),
            ("Access-Control-Allow-Headers", "content-type, x-mine"),
            ("Access-Control-Expose-Headers", "via, x-method"),
            ("X-Method", request.method),
        ]
        if request.method == "OPTIONS":
            return RelayedResponse(204, headers=allowed)
        return RelayedResponse(200, await request.read(), allowed)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    port, https_port, amqps_port = free_ports(3)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    directory = tmp_path_factory.mktemp("relay")
    certificates = make_certificates(directory / "certs", []).ca.parent
    options = ("--tls", str(certificates), "--amqps-port", str(amqps_port), "--https-port", str(https_port))
    with BrokerProcess(directory, config=CONFIG, options=options) as broker:
        made = Scene(broker, https_port, f"http://127.0.0.1:{port}/")
        node = NodeListener(relay_environment(broker))
        async with RelayListener([made.endpoint(OURS)], made.answer, on_socket=made.echo) as listener:
            await listener.listening()
            await asyncio.to_thread(node.wait_until_both_listen)
            yield made
            node.close()
        await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with browser() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def page(scene: Scene, chromium: Browser) -> AsyncIterator[Tab]:
    async with tab(chromium, scene.page_url) as opened:
        yield opened


async def talk(page: Tab, url: str, messages: str, protocols: str = "[]") -> dict[str, object]:
    """What came of a socket of the page: `messages` and `protocols` are expressions of its language."""
    said: dict[str, object] = await asyncio.wait_for(
        page.page.evaluate(f"talk({json.dumps(url)}, {messages}, {protocols})"), SOON_S
    )
    return said


@pytest.mark.parametrize("path", [OURS, HYCO])
async def test_a_page_s_socket_carries_text_and_bytes_both_ways(scene: Scene, page: Tab, path: str) -> None:
    said = await talk(
        page, scene.socket_url(path, "/below"), '["äöü € 😀", new Uint8Array([0, 1, 255]).buffer, "", "x"]'
    )
    assert said == {
        "equal": 4,
        "kinds": ["text", "binary", "text", "text"],
        "errors": 0,
        "protocol": "",
        "code": 4002,
        "reason": "",
        "wasClean": True,
    }
    assert page.problems == []


@pytest.mark.parametrize("path", [OURS, HYCO])
async def test_frames_of_ten_megabytes_pass_whole(scene: Scene, page: Tab, path: str) -> None:
    said = await talk(page, scene.socket_url(path), '[filled(10_000_000).buffer, "é".repeat(500_000)]')
    assert (said["equal"], said["kinds"], said["code"]) == (2, ["binary", "text"], 4002)


async def test_the_service_sees_the_page_s_origin_its_protocol_and_its_close_code(scene: Scene, page: Tab) -> None:
    said = await talk(page, scene.socket_url(OURS), '["x"]', '["chat", "talk"]')
    lower: dict[str, str] = {}
    while "sec-websocket-protocol" not in lower:  # The end of an earlier socket may be seen late.
        headers, code = await asyncio.wait_for(scene.seen.get(), SOON_S)
        lower = {name.lower(): value for name, value in headers.items()}
    assert (said["protocol"], code) == ("chat", 4002)
    assert (lower["origin"] + "/", lower["sec-websocket-protocol"]) == (scene.page_url, "chat, talk")


@pytest.mark.parametrize(
    ("word", "code", "reason"), [("close", 4001, "said the service"), ("vanish", 1011, "The other side is gone.")]
)
async def test_the_page_is_told_how_the_service_ended_the_socket(
    scene: Scene, page: Tab, word: str, code: int, reason: str
) -> None:
    said = await talk(page, scene.socket_url(OURS), f'["{word}"]')
    assert (said["code"], said["reason"], said["wasClean"], said["kinds"]) == (code, reason, True, [])


async def test_a_page_is_told_1001_when_the_hybrid_connection_is_deleted(scene: Scene, page: Tab) -> None:
    name = "short-lived"
    administered = f"/$api/hybrid-connections/{name}"
    json_type = {"Content-Type": "application/json"}
    assert (await asyncio.to_thread(scene.broker.request, "PUT", administered, "{}", json_type))[0] == 200
    async with RelayListener([scene.endpoint(name)], on_socket=scene.echo) as listener:
        await listener.listening()
        await page.page.evaluate(
            f"""new Promise((resolve) => {{
                  const socket = new WebSocket({json.dumps(scene.socket_url(name))});
                  window.ended = new Promise((told) => {{ socket.onclose = ({{ code }}) => told(code); }});
                  socket.onopen = resolve;
                }})"""
        )
        assert (await asyncio.to_thread(scene.broker.request, "DELETE", administered))[0] == 200
        assert await asyncio.wait_for(page.page.evaluate("window.ended"), SOON_S) == 1001


@pytest.mark.parametrize(("path", "key"), [(OURS, "another-key-than-the-right-one"), (NOBODY, None), ("nowhere", None)])
async def test_a_page_whose_socket_is_refused_sees_an_error_and_1006_and_no_more(
    scene: Scene, page: Tab, path: str, key: str | None
) -> None:
    said = await talk(page, scene.socket_url(path, key=key), '["x"]')
    assert said == {"equal": 0, "kinds": [], "errors": 1, "code": 1006, "reason": "", "wasClean": False}


@pytest.mark.parametrize("path", [OURS, HYCO])
async def test_many_sockets_of_a_page_do_not_mix_up_their_answers(scene: Scene, page: Tab, path: str) -> None:
    url = json.dumps(scene.socket_url(path))
    # Ten: Chromium itself holds back a page that opens more at the same moment, for seconds from sixteen on.
    said = await asyncio.wait_for(
        page.page.evaluate(
            f"""Promise.all(Array.from({{ length: 10 }}, (_, number) =>
                  talk({url}, Array.from({{ length: 30 }}, (_, at) => `${{number}}.${{at}}`.repeat(1 + 97 * at)))))"""
        ),
        SOON_S,
    )
    assert [(each["equal"], each["code"]) for each in said] == [(30, 4002)] * 10


async def test_a_page_fetches_from_a_service_that_lets_its_origin_in(scene: Scene, page: Tab) -> None:
    url = f"http://{scene.host}/{OURS}/below?sb-hc-token={scene.token(OURS)}"
    said = await page.page.evaluate(
        f"""(async () => {{
              const body = filled(300_000);
              const options = {{ method: "PUT", body, headers: {{ "Content-Type": "image/x-mine", "X-Mine": "1" }} }};
              const answer = await fetch({json.dumps(url)}, options);
              const equal = await digest(await answer.arrayBuffer()) === await digest(body);
              return [answer.status, answer.headers.get("x-method"), answer.headers.has("via"), equal];
            }})()"""
    )
    assert said == [200, "PUT", True, True]
    assert page.problems == []


async def test_a_page_needs_no_token_where_none_is_asked_for(scene: Scene, page: Tab) -> None:
    async with RelayListener([scene.endpoint(OPEN)], scene.answer, on_socket=scene.echo) as listener:
        await listener.listening()
        said = await talk(page, f"ws://{scene.host}/$hc/{OPEN}?sb-hc-action=connect", '["hello"]')
        options = '{ method: "PUT", body: "hello", headers: { "X-Mine": "1" } }'
        url = json.dumps(f"http://{scene.host}/{OPEN}")
        fetched = await page.page.evaluate(f"fetch({url}, {options}).then((answer) => answer.text())")
    assert (said["equal"], fetched, page.problems) == (1, "hello", [])


@pytest.mark.parametrize("token", ["header", "wrong", "nobody"])
async def test_a_page_cannot_read_what_the_relay_itself_refuses(scene: Scene, page: Tab, token: str) -> None:
    """A token in a header makes the browser ask first, without it; a relay's own answer lets no other origin in."""
    path = NOBODY if token == "nobody" else OURS
    bad = scene.token(path, "another-key-than-the-right-one" if token == "wrong" else None)
    url = f"http://{scene.host}/{path}" + ("" if token == "header" else f"?sb-hc-token={bad}")
    headers = f"{{ ServiceBusAuthorization: decodeURIComponent('{bad}') }}" if token == "header" else "{}"
    said = await page.page.evaluate(f"fetch({json.dumps(url)}, {{ headers: {headers} }}).catch((error) => error.name)")
    assert said == "TypeError"


async def test_a_page_reaches_a_relay_with_tls(scene: Scene, chromium: Browser) -> None:
    url = scene.socket_url(OURS).replace(f"ws://{scene.host}", f"wss://127.0.0.1:{scene.https_port}")
    # The authority that `twinbus certs` makes is nobody's but this test's.
    async with tab(chromium, scene.page_url, ignore_https_errors=True) as page:
        said = await talk(page, url, '["hello", filled(100_000).buffer]')
    assert (said["equal"], said["code"]) == (2, 4002)
