"""The public classes are the SDK's own: `isinstance` holds, and all that the SDK offers works on them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.servicebus.exceptions import ServiceBusError

import twinbus.pair
import twinbus.pair.aio
from twinbus.pair import errors

PRIMARY = "Endpoint=sb://contoso.example;SharedAccessKeyName=n;SharedAccessKey=a2V5"
SECONDARY = "Endpoint=sb://fabrikam.example;SharedAccessKeyName=n;SharedAccessKey=a2V5"
# What we leave as the SDK has it, since it needs nothing but the state that it finds.
INHERITED = {"client_identifier", "list_queue_sessions", "list_subscription_sessions"}
ENTERED = {"__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__", "__aiter__", "__anext__"}


class Made(NamedTuple):
    ours: Any
    theirs: Any  # The SDK's own, made in the same way.
    kind: type


async def made_by(flavour: str, directory: Path) -> AsyncIterator[Made]:
    """Each public object of a flavour; nothing of it needs a broker until it is used."""
    sdk, pair = {
        "sync": (azure.servicebus, twinbus.pair),
        "aio": (azure.servicebus.aio, twinbus.pair.aio),
    }[flavour]
    theirs = sdk.ServiceBusClient.from_connection_string(PRIMARY)
    paired = pair.PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY, primary_name="contoso")
    ledger = pair.Ledger(directory / "ledger.db")
    copied = pair.ReplicatedClient.from_connection_strings(PRIMARY, SECONDARY, mode="passive", ledger=ledger)
    sender, receiver = theirs.get_queue_sender("q"), theirs.get_queue_receiver("q")
    for client in (paired, copied):
        yield Made(client, theirs, sdk.ServiceBusClient)
        yield Made(client.get_queue_sender("q"), sender, sdk.ServiceBusSender)
        yield Made(client.get_topic_sender("q"), sender, sdk.ServiceBusSender)
        words = {"ledger": ledger} if client is paired else {}
        yield Made(client.get_queue_receiver("q", **words), receiver, sdk.ServiceBusReceiver)
        subscription = theirs.get_subscription_receiver("t", "s")
        yield Made(client.get_subscription_receiver("t", "s", **words), subscription, sdk.ServiceBusReceiver)
    yield Made(paired.get_queue_receiver("q"), receiver, sdk.ServiceBusReceiver)
    for closes in (copied, paired, theirs, ledger):
        closed = closes.close()
        if inspect.isawaitable(closed):
            await closed


@pytest.mark.parametrize("flavour", ["sync", "aio"])
async def test_every_object_is_one_of_the_sdk(flavour: str, tmp_path: Path) -> None:
    async for ours, theirs, kind in made_by(flavour, tmp_path):
        assert isinstance(ours, kind)
        assert vars(theirs).keys() <= vars(ours).keys()
        assert ours.fully_qualified_namespace == "contoso.example"
        for name in ("entity_name", "entity_path"):
            assert getattr(ours, name, None) == getattr(theirs, name, None)


@pytest.mark.parametrize("flavour", ["sync", "aio"])
async def test_all_that_the_sdk_offers_is_ours_or_needs_only_state(flavour: str, tmp_path: Path) -> None:
    async for ours, _, kind in made_by(flavour, tmp_path):
        if type(ours) is kind:
            continue  # The SDK's own receiver, of the primary.
        for name in dir(kind):
            if name.startswith("_") and name not in ENTERED:
                continue
            owner = next(each for each in type(ours).__mro__ if name in vars(each))
            exit_calls_our_close = name in ("__exit__", "__aexit__")
            is_ours = owner.__module__.startswith("twinbus.") or exit_calls_our_close
            assert is_ours or name in INHERITED, f"{type(ours).__name__}.{name} is {owner.__module__}'s"


@pytest.mark.parametrize("flavour", ["sync", "aio"])
async def test_every_argument_that_the_sdk_takes_is_taken(flavour: str, tmp_path: Path) -> None:
    async for ours, theirs, kind in made_by(flavour, tmp_path):
        for name in (each for each in dir(kind) if not each.startswith("_")):
            method = getattr(theirs, name)
            assert callable(method) == callable(getattr(ours, name))
            if not inspect.isroutine(method):
                continue
            taken = inspect.signature(getattr(ours, name)).parameters
            takes_any = any(each.kind is each.VAR_KEYWORD for each in taken.values())
            for argument in inspect.signature(method).parameters.values():
                if argument.kind is argument.KEYWORD_ONLY and takes_any:
                    continue
                assert argument.name in taken, f"{type(ours).__name__}.{name} takes no {argument.name}"


@pytest.mark.parametrize("flavour", ["sync", "aio"])
async def test_what_is_inherited_works(flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINBUS_SECONDARY", raising=False)
    async for ours, _, kind in made_by(flavour, tmp_path):
        if kind.__name__ == "ServiceBusClient":
            with pytest.raises(TypeError, match="secondary=, set TWINBUS_SECONDARY, or use from_connection_strings"):
                type(ours).from_connection_string(PRIMARY)
            if hasattr(kind, "list_queue_sessions"):  # Since 7.15.
                assert ours.list_queue_sessions("q") is not None
                assert ours.list_subscription_sessions("t", "s") is not None
        else:
            assert ours.client_identifier in str(ours)


def test_an_application_that_handles_the_sdk_s_errors_handles_ours() -> None:
    ours = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.PairError)]
    assert len(ours) > 5
    for kind in ours:
        with pytest.raises(ServiceBusError):
            raise kind("no")


async def test_a_closed_client_has_no_thread_started_again_by_what_it_made(tmp_path: Path) -> None:
    client = twinbus.pair.ReplicatedClient.from_connection_strings(
        PRIMARY, SECONDARY, mode="active", ledger=tmp_path / "l"
    )
    sender, receiver = client.get_queue_sender("q"), client.get_queue_receiver("q")
    await asyncio.to_thread(client.close)
    sender.close()
    receiver.close()
    assert client._loop_thread._loop is None
