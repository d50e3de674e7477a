"""Authorisation for clients that know nothing of Service Bus: SASL PLAIN, and `$cbs` by hand.

The official client's way, always `$cbs`, is in `test_python_auth`.
"""

from __future__ import annotations

import pytest
from proton import ConnectionException, Link, Message
from proton.utils import BlockingConnection, LinkDetached

from support.atom import Rule
from support.broker import ROOT_POLICY, BrokerProcess, NewQueue
from support.frames import AMQP_HEADER, SASL_HEADER, TIMEOUT_S, RawConnection, frame, performative, symbol
from support.peer import Cbs, Modes, Receiver, connected, pump, pump_until

pytestmark = pytest.mark.feature("sasl-plain")

KEY = "the-key-of-a-policy-of-one-queue"


def send(connection: BlockingConnection, queue: str) -> None:
    connection.create_sender(queue).send(Message(body="m"))


def test_a_policy_name_and_its_key_need_no_token(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue)
        receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_SETTLED))
        assert receiver.take()[0].body == "m"


def test_credentials_in_the_address_are_used_by_a_client_that_chooses_the_mechanism(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    """As proton's own examples connect. It prefers EXTERNAL, which needs no credentials, where that is offered."""
    queue = new_queue()
    address = f"amqp://{ROOT_POLICY}:{broker.key}@{broker.host}:{broker.amqp_port}"
    connection = BlockingConnection(address, timeout=TIMEOUT_S)
    send(connection, queue)
    connection.close()
    assert broker.count(queue) == 1


def test_the_password_is_offered_before_no_credentials_and_external_not_at_all(broker: BrokerProcess) -> None:
    """Some clients, such as ProtonJ2, take the first mechanism that they can, and ANONYMOUS they always can."""
    with RawConnection(broker) as connection:
        connection.write(SASL_HEADER)
        connection.read_until(b"ANONYMOUS")
        offered = connection.received
        assert b"PLAIN" in offered[: offered.index(b"ANONYMOUS")]
        assert b"EXTERNAL" not in offered
        connection.write(frame(performative(0x41, symbol("EXTERNAL")), kind=1) + AMQP_HEADER)
        assert connection.read_to_end().endswith(b"\x00\x53\x44\xc0\x03\x01\x50\x01")  # Code 1: refused.


@pytest.mark.parametrize(
    ("user", "password"),
    [("RootManageSharedAccessKey", "wrong"), ("NoSuchPolicy", None)],
    ids=["wrong key", "unknown policy"],
)
def test_a_wrong_key_or_policy_fails_the_handshake(broker: BrokerProcess, user: str, password: str | None) -> None:
    with pytest.raises(ConnectionException) as caught, connected(broker, user, password):
        pass
    assert "amqp:unauthorized-access" in str(caught.value)
    assert broker.key not in broker.log


def test_an_anonymous_connection_may_attach_nothing_but_cbs(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker, user=None) as connection:
        for address in (queue, f"{queue}/$management"):
            with pytest.raises(LinkDetached) as caught:
                connection.create_sender(address)
            assert caught.value.condition == "amqp:unauthorized-access"
        cbs = Cbs(connection, broker)
        assert cbs.put(queue, broker.token(queue)) in (200, 202)
        send(connection, queue)
    assert broker.count(queue) == 1


@pytest.mark.feature("shared-access-signatures")
def test_cbs_tells_a_missing_entity_from_a_bad_token(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue(AuthorizationRules=[Rule("app", ("Send",), KEY)])
    other = new_queue()
    with connected(broker, user=None) as connection:
        cbs = Cbs(connection, broker)
        assert cbs.put("no-such-queue", broker.token("no-such-queue")) == 404
        assert cbs.put(queue, broker.token(queue, key="wrong-key-of-the-namespace")) == 401
        assert cbs.put(queue, broker.token(queue, lifetime_s=-5)) == 401
        assert cbs.put(queue, "SharedAccessSignature nonsense") == 401
        assert cbs.put(queue, broker.token(queue + "-and-more")) == 401
        # A policy of one queue signs for that queue, not for another and not for the namespace.
        assert cbs.put(other, broker.token(other, policy="app", key=KEY)) == 401
        assert cbs.put(queue, broker.token("", policy="app", key=KEY)) == 401
        assert cbs.put(queue, broker.token(queue, policy="app", key=KEY)) in (200, 202)
        send(connection, queue)
        with pytest.raises(LinkDetached):
            connection.create_receiver(queue)


@pytest.mark.feature("shared-access-signatures")
def test_a_lapsed_token_detaches_its_links_and_a_renewed_one_keeps_them(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    """Two queues on one connection; the token of one is renewed in time."""
    lapsing, renewed = new_queue(), new_queue()
    with connected(broker, user=None) as connection:
        cbs = Cbs(connection, broker)
        for queue in (lapsing, renewed):
            assert cbs.put(queue, broker.token(queue, lifetime_s=8)) in (200, 202)
        lapsing_sender, renewed_sender = connection.create_sender(lapsing), connection.create_sender(renewed)
        assert cbs.put(renewed, broker.token(renewed, lifetime_s=600)) in (200, 202)
        with pytest.raises(LinkDetached) as caught:
            pump_until(connection, lambda: False, "the end of the link")
        assert caught.value.condition == "amqp:unauthorized-access"
        assert caught.value.link is lapsing_sender.link or caught.value.link.name == lapsing_sender.link.name
        pump(connection, 0.5)
        renewed_sender.send(Message(body="m"))
    assert broker.count(renewed) == 1
