"""The published JavaScript clients of Hybrid Connections, unmodified, against the relay: hyco-https and hyco-ws.

Node listens (js/relay_listener.mjs); senders are hyco-ws, plain HTTP, and what any WebSocket client does.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest

from support.broker import ROOT_POLICY, BrokerProcess
from support.relay_node import JS, WAIT_S, NodeListener, relay_environment
from twinbus.wire.sas import make_token

CONFIG = """
[[hybrid_connections]]
Name = "http-service"

[[hybrid_connections]]
Name = "ws-service"
"""

pytestmark = pytest.mark.feature("relay")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Scene:
    """A broker, a node process that listens at it, and senders."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.environment = relay_environment(broker)
        self.listener = NodeListener(self.environment)
        self.listener.wait_until_both_listen()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.broker.host, self.broker.http_port, timeout=WAIT_S)

    def token(self) -> str:
        resource = f"http://{self.broker.host}/http-service"
        return make_token(resource, ROOT_POLICY, self.broker.key, int(time.time()) + 300)

    def request(
        self, method: str, below: str = "", body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = self.connection()
        try:
            sent = {"ServiceBusAuthorization": self.token(), **(headers or {})}
            connection.request(method, f"/http-service{below}", body, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def echo(self, *sizes: int) -> dict[str, object]:
        result: dict[str, object] = json.loads(self.node("relay_sender.mjs", *map(str, sizes)))
        return result

    def node(self, *words: str) -> str:
        """What a script prints."""
        run = subprocess.run(
            ["node", *words], cwd=JS, env=self.environment, capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        return run.stdout


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with BrokerProcess(tmp_path_factory.mktemp("relay"), config=CONFIG) as broker:
        made = Scene(broker)
        try:
            yield made
        finally:
            made.listener.close()
        assert broker.stop() == 0
    assert "Traceback" not in broker.log, broker.log[-8000:]


def test_a_get_is_answered_by_hyco_https(scene: Scene) -> None:
    answer = scene.request("GET", "/below?a=1&b=%20")
    assert (answer.status, answer.body) == (200, b"hello GET")
    assert answer.headers["x-target"] == "/http-service/below?a=1&b=%20"
    assert answer.headers["via"].startswith("1.1 ")


def test_a_token_in_the_query_is_not_shown_to_the_listener(scene: Scene) -> None:
    connection = scene.connection()
    token = quote(scene.token(), safe="")
    connection.request("GET", f"/http-service?x=1&sb-hc-token={token}", headers={"Authorization": "Basic mine"})
    response = connection.getresponse()
    seen = json.loads(response.headers["X-Headers"])
    assert (response.status, response.headers["X-Target"]) == (200, "/http-service?x=1")
    assert seen["authorization"] == "Basic mine"
    assert "servicebusauthorization" not in seen
    connection.close()


def test_a_small_post_is_answered_by_hyco_https(scene: Scene) -> None:
    answer = scene.request("POST", body=b"a small body")
    assert (answer.status, answer.body) == (200, b"a small body")
    assert answer.headers["content-length"] == "12"


@pytest.mark.parametrize("size", [64 * 1024, 100 * 1024, 10_000_000])
def test_large_requests_and_responses_pass_hyco_https_whole(scene: Scene, size: int) -> None:
    body = os.urandom(size)
    assert scene.request("POST", body=body).body == body
    assert scene.request("GET", f"?size={size}").body == b"x" * size


def test_a_chunked_request_is_answered_by_hyco_https(scene: Scene) -> None:
    connection = scene.connection()
    connection.request("POST", "/http-service", iter([b"in ", b"pieces"]), {"ServiceBusAuthorization": scene.token()})
    assert connection.getresponse().read() == b"in pieces"
    connection.close()


def test_a_response_of_hyco_https_streams_before_it_has_ended(scene: Scene) -> None:
    connection = scene.connection()
    connection.request("GET", "/http-service?pieces", headers={"ServiceBusAuthorization": scene.token()})
    response = connection.getresponse()
    assert response.read(100 * 1024) == b"a" * 100 * 1024
    scene.listener.go_on()
    assert response.read() == b"b" * 100 * 1024
    connection.close()


def test_a_service_s_error_is_passed_on_with_via(scene: Scene) -> None:
    answer = scene.request("GET", "?status=418")
    assert (answer.status, "via" in answer.headers) == (418, True)


def test_a_status_that_is_the_relay_s_own_cannot_be_used_by_a_listener(scene: Scene) -> None:
    answer = scene.request("GET", "?status=502")
    assert (answer.status, "via" in answer.headers) == (500, True)


def test_a_socket_of_hyco_ws_echoes(scene: Scene) -> None:
    assert scene.echo(5, 1, 70_000) == {"equal": True, "count": 3, "code": 1000}


def test_large_messages_pass_hyco_ws_whole(scene: Scene) -> None:
    assert scene.echo(100 * 1024, 10_000_000) == {"equal": True, "count": 2, "code": 1000}


def test_hyco_ws_comes_back_by_itself_to_a_relay_that_is_there(scene: Scene) -> None:
    assert scene.node("relay_reconnect.mjs", "expired").split() == ["listening", "listening"]


def test_each_failed_try_of_hyco_ws_begets_two(scene: Scene) -> None:
    """Why docs/relay.md gives an application two lines: without them a relay's outage takes the process with it."""
    assert json.loads(scene.node("relay_reconnect.mjs", "refused")) == [1, 2, 4, 8]


def test_both_clients_listen_again_after_the_relay_restarts(scene: Scene) -> None:
    scene.listener.forget()
    scene.broker.restart()
    scene.listener.wait_until_both_listen()
    assert scene.request("GET").status == 200
    assert scene.echo(1000) == {"equal": True, "count": 1, "code": 1000}
    listeners = json.loads(scene.broker.request("GET", "/$api/hybrid-connections/ws-service")[1])["listeners"]
    assert listeners == 1


def test_both_clients_listen_again_after_the_relay_was_killed(scene: Scene) -> None:
    scene.listener.forget()
    scene.broker.kill()
    scene.broker.start()
    scene.listener.wait_until_both_listen()
    assert scene.request("GET").status == 200
    assert scene.echo(1000) == {"equal": True, "count": 1, "code": 1000}
