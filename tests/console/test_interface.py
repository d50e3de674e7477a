"""What the console asks the JSON API for, asked directly: messages, dead letters by reason, jobs, the inside."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from console.conftest import BATCH, LISTENER_KEY
from support.broker import BrokerProcess, wait_for
from twinbus.wire.sas import make_token


class Api:
    """The JSON API of a broker, and messages to play with."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def ask(self, method: str, path: str, document: Any = None, **parameters: object) -> tuple[int, Any]:
        target = f"/$api/{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        status, text = self.broker.request(method, target, None if document is None else json.dumps(document))
        return status, json.loads(text)

    def get(self, path: str, **parameters: object) -> Any:
        status, document = self.ask("GET", path, **parameters)
        assert status == 200, document
        return document

    def send(self, queue: str, count: int, **system: Any) -> None:
        messages = [
            {
                "Body": f"body {at}",
                "BrokerProperties": {"MessageId": f"m{at}", **system},
                "UserProperties": {"number": at},
            }
            for at in range(count)
        ]
        status, text = self.broker.request("POST", f"/{queue}/messages", json.dumps(messages), {"Content-Type": BATCH})
        assert status == 201, text

    def kill(self, queue: str, count: int) -> None:
        """So many dead letters."""
        self.send(queue, count, TimeToLive=600)
        assert self.ask("POST", "clock", {"advance": "PT601S"})[0] == 200

    def job(self, **wanted: str) -> Any:
        """A job, when it is over."""
        status, job = self.ask("POST", "jobs", wanted)
        assert status == 200, job
        wait_for(lambda: self.get(f"jobs/{job['number']}")["state"] != "running", "the end of a job")
        return self.get(f"jobs/{job['number']}")


@pytest.fixture(scope="module")
def api(brokers: tuple[BrokerProcess, BrokerProcess]) -> Api:
    return Api(brokers[0])


class TestMessages:
    def test_messages_are_looked_at_a_page_at_a_time_and_stay(self, api: Api) -> None:
        queue = api.broker.create_queue("pages")
        api.send(queue, 7)
        first = api.get("messages", entity=queue, top=5)
        assert [message["sequence_number"] for message in first["messages"]] == [1, 2, 3, 4, 5]
        second = api.get("messages", entity=queue, top=5, **{"from": first["next"]})
        assert [message["message_id"] for message in second["messages"]] == ["m5", "m6"]
        assert second["next"] is None
        assert all(message["delivery_count"] == 0 for message in api.get("messages", entity=queue)["messages"])

    def test_a_condition_chooses_and_one_that_cannot_be_is_refused(self, api: Api) -> None:
        queue = api.broker.create_queue("chosen")
        api.send(queue, 5)
        found = api.get("messages", entity=queue, filter="number > 2 AND sys.SequenceNumber < 5")
        assert [message["application_properties"]["number"] for message in found["messages"]] == [3]
        assert found["examined"] == 5
        status, refusal = api.ask("GET", "messages", entity=queue, filter="number >")
        assert (status, refusal["error"]["code"]) == (400, "argument")

    def test_a_preview_is_cut_and_one_message_is_whole(self, api: Api) -> None:
        queue = api.broker.create_queue("whole")
        api.send(queue, 1)
        (message,) = api.get("messages", entity=queue, preview=4)["messages"]
        assert (base64.b64decode(message["body"]), message["body_bytes"]) == (b"body", 6)
        assert base64.b64decode(api.get("messages/1", entity=queue)["body"]) == b"body 0"
        assert api.ask("GET", "messages/2", entity=queue)[0] == 404

    def test_dead_letters_are_grouped_by_reason(self, api: Api) -> None:
        queue = api.broker.create_queue("reasons", DeadLetteringOnMessageExpiration="true")
        api.kill(queue, 12)
        found = api.get("dead-letters", entity=queue)
        assert [(group["reason"], group["count"]) for group in found["reasons"]] == [("TTLExpiredException", 12)]
        assert found["whole"]


class TestJobs:
    def test_counting_sending_back_and_removing_by_a_condition(self, api: Api) -> None:
        queue = api.broker.create_queue("worked", DeadLetteringOnMessageExpiration="true")
        api.kill(queue, 500)
        counted = api.job(work="count", entity=queue, filter="number < 300")
        assert (counted["state"], counted["done"], counted["kept"], counted["total"]) == ("done", 300, 200, 500)
        moved = api.job(work="redrive", entity=queue, filter="number < 300")
        assert (moved["done"], moved["kept"]) == (300, 200)
        removed = api.job(work="purge", entity=queue, filter="number >= 450")
        assert (removed["done"], removed["kept"]) == (50, 150)
        assert api.broker.count(queue) == 300
        assert api.broker.count(queue, "DeadLetterMessageCount") == 150
        assert api.job(work="purge", entity=queue)["done"] == 150
        assert api.job(work="purge", entity=queue, sub_queue="main")["done"] == 300

    @pytest.mark.parametrize(
        "wanted",
        [
            {"work": "explode", "entity": "unworked"},
            {"work": "redrive", "entity": "unworked", "sub_queue": "main"},
            {"work": "purge", "entity": "unworked", "sub_queue": "main", "filter": "1 = 1"},
            {"work": "purge", "entity": "unworked", "filter": "oops ="},
            {"work": "purge", "entity": "unworked", "colour": "red"},
        ],
    )
    def test_what_cannot_be_done_is_refused_at_once(self, api: Api, wanted: dict[str, str]) -> None:
        if api.get("entities", name="unworked")["total"] == 0:
            api.broker.create_queue("unworked")
        assert api.ask("POST", "jobs", wanted)[0] == 400

    def test_a_job_that_is_over_can_be_ended_and_an_unknown_one_not(self, api: Api) -> None:
        queue = api.broker.create_queue("over")
        job = api.job(work="count", entity=queue)
        assert api.ask("DELETE", f"jobs/{job['number']}")[1]["state"] == "done"
        assert api.ask("DELETE", "jobs/999999")[0] == 404
        assert job["number"] in [each["number"] for each in api.get("jobs")["jobs"]]


class TestInside:
    def test_a_refusal_is_found_by_its_tracking_id(self, api: Api) -> None:
        status, refusal = api.ask("GET", "nothing-here")
        assert status == 404
        (found,) = api.get("errors", filter=refusal["error"]["tracking_id"])["errors"]
        assert found["code"] == "http-404"
        assert "nothing-here" in found["entity"]

    def test_policies_limits_and_commit_times_are_told_without_keys(self, api: Api) -> None:
        found = api.get("usage")
        assert {"name": "listener", "rights": ["Listen"]} in found["policies"]
        assert LISTENER_KEY not in json.dumps(found)
        assert any(limit["name"] == "queues and topics" and limit["used"] > 0 for limit in found["limits"])
        assert any(store["measured"] and store["p99_ms"] > 0 for store in found["commits"])
        assert 0 < found["disk"]["free_bytes"] <= found["disk"]["bytes"]

    def test_the_conservation_line_balances(self, api: Api) -> None:
        queue = api.broker.create_queue("weighed")
        before = api.get("balance")
        api.send(queue, 5)
        api.job(work="purge", entity=queue, sub_queue="main")
        api.send(queue, 2)
        after = api.get("balance")
        assert after["created"]["accepted"] - before["created"].get("accepted", 0) == 7
        assert after["ended"]["purged"] - before["ended"].get("purged", 0) == 5
        assert (before["told"], before["delta"], after["delta"]) == (True, 0, 0)

    def test_whoever_may_listen_may_look_and_nothing_else(self, api: Api) -> None:
        api.broker.create_queue("listened")
        host = f"http://{api.broker.host}:{api.broker.http_port}/"
        token = make_token(host, "listener", LISTENER_KEY, int(time.time()) + 60)
        answers = {
            path: api.broker.request("GET", f"/$api/{path}", None, {"Authorization": token})[0]
            for path in ("entities", "messages?entity=listened", "dead-letters?entity=listened", "status", "usage",
                         "connections", "errors", "jobs", "clients", "balance", "drills")
        }  # fmt: skip
        assert answers == {
            "entities": 200, "messages?entity=listened": 200, "dead-letters?entity=listened": 200, "status": 401,
            "usage": 401, "connections": 401, "errors": 401, "jobs": 401, "clients": 401,
            "balance": 401, "drills": 401,
        }  # fmt: skip
        body = json.dumps({"work": "purge", "entity": "listened"})
        assert api.broker.request("POST", "/$api/jobs", body, {"Authorization": token})[0] == 401
