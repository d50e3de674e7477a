"""The REST data plane as a plain HTTP client sees it; what it must answer is judged by the tests."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from support.broker import ROOT_POLICY, BrokerProcess
from twinbus.wire.sas import make_token

BATCH = "application/vnd.microsoft.servicebus.json"


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def broker_properties(self) -> dict[str, Any]:
        found = json.loads(self.headers["BrokerProperties"])
        assert isinstance(found, dict)
        return found

    @property
    def location(self) -> str:
        """The path of a locked message."""
        return urlsplit(self.headers["Location"]).path


class Rest:
    """Requests to one broker, each on a connection of its own."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def token(self, path: str = "", policy: str = ROOT_POLICY, key: str | None = None) -> str:
        resource = f"http://{self.broker.host}:{self.broker.http_port}/{path}"
        return make_token(resource, policy, key or self.broker.key, int(time.time()) + 300)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request, signed by the root policy unless `headers` say otherwise."""
        connection = http.client.HTTPConnection(self.broker.host, self.broker.http_port, timeout=40)
        try:
            connection.request(method, path, body, {"Authorization": self.token(), **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())  # type: ignore[arg-type]
        finally:
            connection.close()

    def send(self, path: str, body: bytes = b"", system: Mapping[str, Any] | None = None, **headers: str) -> Answer:
        """Send one message; `system` are its broker properties."""
        told = {"BrokerProperties": json.dumps(system)} if system is not None else {}
        return self.ask("POST", f"/{path}/messages", body, told | headers)

    def send_batch(self, path: str, *messages: Mapping[str, Any]) -> Answer:
        """Send several messages at once."""
        return self.ask("POST", f"/{path}/messages", json.dumps(messages).encode(), {"Content-Type": BATCH})

    def peek_lock(self, path: str, timeout_s: int = 10) -> Answer:
        """Lock the next message."""
        return self.ask("POST", f"/{path}/messages/head?timeout={timeout_s}")

    def receive_delete(self, path: str, timeout_s: int = 10) -> Answer:
        """Remove the next message."""
        return self.ask("DELETE", f"/{path}/messages/head?timeout={timeout_s}")
