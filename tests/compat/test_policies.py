"""Policies of a namespace over restarts with other files, and through the API, as the official client meets them."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError

from support.broker import SOON_S, BrokerProcess, wait_for
from twinbus.wire.sas import make_token

pytestmark = pytest.mark.feature("policies of the namespace")

QUEUE = '[[queues]]\nName = "orders"\n'
KEY, OTHER_KEY = "a-key-of-some-length", "another-key-of-some-length"


def policy(name: str, rights: str, key: str | None = None) -> str:
    given = "" if key is None else f'PrimaryKey = "{key}"\n'
    return f'[[policies]]\nName = "{name}"\nRights = ["{rights}"]\n{given}'


class Namespace(BrokerProcess):
    """A broker whose file is written anew before a restart; None for none at all."""

    key_option = True  # Whether it is started with --key.

    @property
    def command(self) -> list[str]:
        words = super().command
        if self.key_option:
            return words
        at = words.index("--key")
        return words[:at] + words[at + 2 :]

    def configured(self, text: str | None) -> Namespace:
        if self.process is not None:
            assert self.stop() == 0
        self._config_file = None
        if text is not None:
            self._config_file = self.directory / "broker.toml"
            self._config_file.write_text(text)
        self.start()
        return self

    def api(self, method: str, path: str, expected: int = 200, **body: Any) -> Any:
        status, text = self.request(method, f"/$api/{path}", json.dumps(body) if method in ("POST", "PUT") else None)
        assert status == expected, text
        return json.loads(text)

    @property
    def origins(self) -> dict[str, str]:
        return {each["name"]: each["came_from"] for each in self.api("GET", "policies")["policies"]}

    def keys(self, name: str) -> tuple[str, str]:
        found = self.api("GET", f"policies/{name}")
        return found["primary_key"], found["secondary_key"]

    def lets_send(self, name: str, key: str) -> bool:
        """Whether a message is taken that is signed with a key; over HTTP, which is quick."""
        token = make_token(f"http://{self.host}:{self.http_port}/orders", name, key, int(time.time()) + 300)
        status, text = self.request("POST", "/orders/messages", "x", {"Authorization": token})
        assert status in (201, 401), text
        return status == 201


def lets_client_send(broker: Namespace, name: str, key: str) -> bool:
    """Whether the official client can send a message with a key."""
    client = ServiceBusClient.from_connection_string(broker.connection_string(name, key), retry_total=0)
    try:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    except (ServiceBusAuthenticationError, ServiceBusAuthorizationError):
        return False
    return True


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Namespace]:
    process = Namespace(tmp_path)
    yield process
    process.kill()
    assert "Traceback" not in process.log, process.log[-8000:]


def test_policies_follow_the_file_over_restarts(broker: Namespace) -> None:
    broker.configured(QUEUE + policy("shop", "Send") + policy("fixed", "Send", KEY))
    shop = broker.keys("shop")
    made = broker.api("POST", "policies", name="made", rights=["Send"])
    assert broker.origins == {
        "RootManageSharedAccessKey": "first-start", "shop": "file", "fixed": "file", "made": "api",
    }  # fmt: skip
    assert lets_client_send(broker, "shop", shop[0])
    assert broker.lets_send("fixed", KEY)

    # Another key and other rights, and the policy is what the file says; a key that was made is kept.
    broker.configured(QUEUE + policy("shop", "Send") + policy("fixed", "Send", OTHER_KEY))
    assert (broker.lets_send("fixed", OTHER_KEY), broker.lets_send("fixed", KEY)) == (True, False)
    assert broker.keys("shop") == shop

    # Without any file nothing is said of policies, and nobody is locked out.
    broker.configured(None)
    assert broker.lets_send("shop", shop[1])
    assert broker.origins["shop"] == "file"

    # What is taken out of the file is gone, what the API made stays; a clash is the file's.
    broker.configured(QUEUE + policy("made", "Listen"))
    assert broker.origins == {"RootManageSharedAccessKey": "first-start", "made": "file"}
    assert not lets_client_send(broker, "shop", shop[0])
    assert not broker.lets_send("made", made["primary_key"])  # Which may only listen now.
    assert broker.keys("made") == (made["primary_key"], made["secondary_key"])
    assert "the policy 'shop' of 'compat' is no longer in the configuration file" in broker.log
    assert "the policy 'made' of 'compat' was made through the API; the settings name it now" in broker.log

    broker.configured(QUEUE)
    assert broker.origins == {"RootManageSharedAccessKey": "first-start"}


def test_data_of_before_is_read_and_nobody_is_locked_out(broker: Namespace) -> None:
    broker.configured(QUEUE + policy("shop", "Send", KEY) + policy("old", "Send", OTHER_KEY))
    assert broker.stop() == 0
    with closing(sqlite3.connect(broker.data / "catalog.db")) as catalog, catalog:
        assert catalog.execute("DELETE FROM meta WHERE key = 'policy-origins'").rowcount == 1
    broker.configured(QUEUE + policy("shop", "Send", KEY))
    assert broker.origins == {"RootManageSharedAccessKey": "first-start", "shop": "file", "old": "api"}
    assert broker.lets_send("old", OTHER_KEY)
    assert "the policy 'old' of 'compat' came from nobody knows where, and is kept" in broker.log
    broker.api("DELETE", "policies/old")
    assert not broker.lets_send("old", OTHER_KEY)


def test_a_key_that_is_rotated_away_ends_open_links_at_once(broker: Namespace) -> None:
    broker.configured(QUEUE)
    first = broker.api("POST", "policies", name="shop", rights=["Send"])["primary_key"]
    client = ServiceBusClient.from_connection_string(broker.connection_string("shop", first), retry_total=0)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("1"))
    second = broker.api("POST", "policies/shop/rotate")["primary_key"]
    sender.send_messages(ServiceBusMessage("2"))  # The old primary key is the secondary key.
    broker.api("POST", "policies/shop/rotate")

    def is_refused() -> bool:
        try:
            sender.send_messages(ServiceBusMessage("3"))
        except ServiceBusError:
            return True
        return False

    # The link is gone already; the client may notice it with the next message only.
    wait_for(is_refused, SOON_S)
    assert broker.count("orders") == 2
    assert not lets_client_send(broker, "shop", first)
    assert broker.lets_send("shop", second)
    assert lets_client_send(broker, "shop", broker.keys("shop")[0])
    assert broker.lets_send("shop", broker.keys("shop")[0])


def test_the_root_policy_is_rotated_and_kept_until_the_settings_say_otherwise(broker: Namespace) -> None:
    root = "policies/RootManageSharedAccessKey"
    broker.configured(QUEUE)
    assert "given by the broker's settings" in broker.api("POST", f"{root}/rotate", 409)["error"]["message"]
    assert "always manages" in broker.api("PUT", root, 409, rights=["Send"])["error"]["message"]
    assert "the last policy that manages" not in broker.api("DELETE", root, 409)["error"]["message"]
    old = broker.keys("RootManageSharedAccessKey")[1]
    new = broker.api("POST", f"{root}/rotate", key="secondary")["secondary_key"]
    assert not broker.lets_send("RootManageSharedAccessKey", old)

    # Started without --key, its primary key is its own.
    broker.key_option = False
    broker.configured(QUEUE)
    assert broker.keys("RootManageSharedAccessKey") == (broker.key, new)
    broker.key = broker.api("POST", f"{root}/rotate", key="primary")["primary_key"]
    assert "the last policy that manages" in broker.api("DELETE", root, 409)["error"]["message"]
    broker.restart()
    assert broker.keys("RootManageSharedAccessKey") == (broker.key, new)

    # Removed where another manages, it stays away; when nobody manages any more, it is made again.
    broker.configured(QUEUE + policy("admin", "Manage", KEY))
    broker.api("DELETE", root)
    assert broker.request("GET", "/$api/policies")[0] == 401
    assert not broker.lets_send("RootManageSharedAccessKey", new)
    broker.configured(QUEUE)
    found = re.findall(r"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=([^;]+)", broker.output)
    assert found[-1] not in (broker.key, new)
    broker.key = found[-1]
    assert broker.origins == {"RootManageSharedAccessKey": "first-start"}


def test_a_policy_that_does_not_manage_sees_and_changes_nothing(broker: Namespace) -> None:
    broker.configured(QUEUE + policy("reader", "Listen", KEY))
    resource = f"http://{broker.host}:{broker.http_port}/"
    token = make_token(resource, "reader", KEY, 1 << 34)
    for method, path in (("GET", "policies"), ("GET", "policies/reader"), ("DELETE", "policies/reader")):
        assert broker.request(method, f"/$api/{path}", headers={"Authorization": token})[0] == 401
