"""Which adapter a pair gets to each of its namespaces: our own client, or the SDK where only that knows the way."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.core import namespaces_of
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.namespace import SdkNamespace, asynchronous

PROOF = "SharedAccessKeyName=policy;SharedAccessKey=key"
AZURE = f"Endpoint=sb://contoso.servicebus.windows.net/;{PROOF}"
OTHER = f"Endpoint=sb://fabrikam.servicebus.windows.net/;{PROOF}"
WEBSOCKET = {"transport_type": TransportType.AmqpOverWebsocket}
PROXY = {"http_proxy": {"proxy_hostname": "http://proxy.example", "proxy_port": 3128}}
ELSEWHERE = {"custom_endpoint_address": "sb://gateway.example:443", "transport_type": TransportType.Amqp}


def adapters(adapter: str = "own", flavour: Any = ServiceBusClient, **settings: Any) -> list[type[RemoteNamespace]]:
    """What the primary, whose client has the settings, and the secondary get."""
    first = flavour.from_connection_string(AZURE, **settings)
    second = flavour.from_connection_string(OTHER)
    return [type(each) for each in namespaces_of(first, second, SendAvailabilityOptions(adapter=adapter))]


def test_our_own_client_is_used_unless_somebody_says_otherwise() -> None:
    assert adapters() == [OwnClientNamespace, OwnClientNamespace]
    assert adapters("sdk") == [SdkNamespace, SdkNamespace]
    with pytest.raises(ValueError, match="adapter must be one of own, sdk, not 'other'"):
        SendAvailabilityOptions(adapter="other")


@pytest.mark.parametrize("flavour", [ServiceBusClient, AsyncServiceBusClient], ids=["sync", "aio"])
@pytest.mark.parametrize("settings", [WEBSOCKET, PROXY, ELSEWHERE], ids=["websocket", "proxy", "elsewhere"])
def test_a_way_that_only_the_sdk_knows_is_left_to_it(settings: dict[str, Any], flavour: Any) -> None:
    assert adapters(flavour=flavour, **settings) == [SdkNamespace, OwnClientNamespace]


def test_what_is_said_with_two_connection_strings_holds_too() -> None:
    client = PairedServiceBusClient.from_connection_strings(AZURE, OTHER, **WEBSOCKET)
    assert isinstance(client._core.primary, SdkNamespace)
    assert isinstance(client._core.secondary, SdkNamespace)


def test_another_port_alone_is_no_reason() -> None:
    """The SDK knows it only as another address; our own client takes it as it is."""
    pair = [f"Endpoint=sb://broker{number}.example:5701;{PROOF}" for number in (1, 2)]
    client = PairedServiceBusClient.from_connection_strings(*pair)
    assert isinstance(client._core.primary, OwnClientNamespace)


def test_the_adapter_goes_where_the_client_goes_as_who_it_is() -> None:
    client = ServiceBusClient.from_connection_string(AZURE, **WEBSOCKET, **PROXY)
    namespace, _ = namespaces_of(client, client, SendAvailabilityOptions(attempt_timeout=7))
    assert isinstance(namespace, SdkNamespace)
    assert (namespace.role, namespace.address, namespace.timeout_s) == (
        "primary",
        ("contoso.servicebus.windows.net", 5671),
        7.0,
    )
    assert namespace.target.policy == "policy"
    assert namespace._client._config.http_proxy == PROXY["http_proxy"]
    assert namespace._client._config.retry_total == 0


@pytest.mark.parametrize("flavour", [ServiceBusClient, AsyncServiceBusClient], ids=["sync", "aio"])
@pytest.mark.parametrize(
    ("settings", "transport", "port"),
    [
        ({}, TransportType.Amqp, 5701),
        (WEBSOCKET, TransportType.AmqpOverWebsocket, 5701),
        (PROXY, TransportType.AmqpOverWebsocket, 5701),
        (ELSEWHERE, TransportType.Amqp, 443),
        ({"custom_endpoint_address": "sb://gateway.example:8443"}, TransportType.AmqpOverWebsocket, 8443),
    ],
    ids=["port", "websocket", "proxy", "elsewhere", "elsewhere-by-default"],
)
def test_the_port_of_a_connection_string_is_dialled_by_the_way_that_was_asked_for(
    flavour: Any, settings: dict[str, Any], transport: TransportType, port: int
) -> None:
    """A port must not take a proxy or a WebSocket away: that is the only way out of some networks."""
    client = sdk.new_client(flavour, f"Endpoint=sb://broker.example:5701;{PROOF}", settings)
    config = client.get_queue_sender("orders")._config
    assert (config.transport_type, config.connection_port) == (transport, port)


def test_a_client_made_after_another_one_proves_who_it_is_in_the_same_way_and_tries_as_often() -> None:
    """A signature is no token of an identity provider, and must be sent as what it is."""
    signature = "SharedAccessSignature sr=a&sig=b&se=1&skn=c"
    text = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessSignature={signature}"
    client = ServiceBusClient.from_connection_string(text, retry_total=7, user_agent="shop", **WEBSOCKET)
    made = asynchronous(client)
    assert made._credential.token_type == client._credential.token_type
    settings = [
        (each._config.retry_total, each._config.user_agent, each._config.transport_type) for each in (client, made)
    ]
    assert settings[0] == settings[1]
