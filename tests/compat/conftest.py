"""A broker process for each module of compatibility tests, queues of their own for each test, and both clients.

The marker `feature`, with the name of what a test shows, is what the compatibility page is made from.
"""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from pytest_asyncio import is_async_test

from support import atom
from support.broker import BrokerProcess, NewQueue
from support.gateways import ON_POSTGRES, Gateways, new_database
from support.sdk import FLAVOURS, Bus

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the official Python client share a loop, in which it closes things while the next test runs."""
    for item in items:
        if ("bus" in getattr(item, "fixturenames", ()) or "readme" in item.nodeid) and is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that serves this module's tests and then ends as it should.

    Its clock can be moved in a module with MOVABLE_CLOCK. With TWINBUS_TEST_STORE=postgresql it is two gateways behind
    a balancer, on a database of their own, whose clock cannot be moved.
    """
    directory, is_movable = tmp_path_factory.mktemp("broker"), getattr(request.module, "MOVABLE_CLOCK", False)
    process = BrokerProcess(directory, options=("--test-clock",) if is_movable else ())
    if ON_POSTGRES:
        process = Gateways(directory, [new_database(request.getfixturevalue("postgres"))])
    with process:
        yield process
        code = process.stop()
    assert code == 0, process.log[-4000:]
    assert "Traceback" not in process.log, process.log[-8000:]


@pytest.fixture
def new_queue(broker: BrokerProcess, request: pytest.FixtureRequest) -> NewQueue:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())

    def create(**settings: atom.Setting) -> str:
        return broker.create_queue(f"{words[:60].strip('-')}-{next(_numbers)}", **settings)

    return create


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus(broker: BrokerProcess) -> AsyncIterator[list[Bus]]:
    """The official client, blocking and asynchronous; `support.sdk.both` hands a test one of the two."""
    flavours = [Bus(flavour, broker) for flavour in FLAVOURS]
    yield flavours
    for one in flavours:
        await one.closed()
    gc.collect()  # What the client forgot to close is found here, where that is no failure.
