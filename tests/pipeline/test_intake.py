"""The source and its broker, without Spark: what is received, held, settled, and found after a lost connection."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.broker import BrokerProcess, wait_for
from support.streams import StreamScene
from twinbus.cli import app
from twinbus.model.message import Outcome
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.options import SourceOptions
from twinbus.pipeline.reading.deferring import Deferring
from twinbus.pipeline.reading.intake import Intake
from twinbus.pipeline.reading.staged import Limit
from twinbus.pipeline.reading.staging import Key, Staged

MANY = Limit(1000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), namespace="taken-in") as process:
        yield process


@pytest.fixture
def scene(broker: BrokerProcess, tmp_path: Path) -> StreamScene:
    return StreamScene(None, broker, tmp_path)  # type: ignore[arg-type]


@contextmanager
def intake(scene: StreamScene, **options: Any) -> Iterator[Intake]:
    given = {name: str(value) for name, value in options.items()}
    found = Intake(SourceOptions.parse({"connectionString": scene.broker.connection_string(), **given}))
    try:
        yield found
    finally:
        found.close()


def take(
    found: Intake, limit: Limit = MANY, wait_s: float = 0.5, known: Callable[[Key], bool] = lambda _: False
) -> list[Staged]:
    return found.receive(limit, wait_s, known)


def keys(messages: list[Staged]) -> set[Key]:
    return {Key(message.entity, message.number) for message in messages}


def test_a_quiet_queue_does_not_hold_up_a_busy_one(scene: StreamScene) -> None:
    busy, quiet = scene.queue(), scene.queue()
    with intake(scene, subscribe=f"{quiet},{busy}") as found:
        assert take(found, wait_s=0.0) == []
        scene.send(busy, ["a"])
        assert keys(take(found, wait_s=3600.0)) == {Key(busy, 1)}  # Who waited for the quiet one would never end.


def test_a_limit_is_shared_by_the_queues_that_have_something(scene: StreamScene) -> None:
    first, second, empty = scene.queue(), scene.queue(), scene.queue()
    scene.send(first, [f"a{n}" for n in range(50)])
    scene.send(second, [f"b{n}" for n in range(3)])
    with intake(scene, subscribe=f"{first},{empty},{second}") as found:
        taken = take(found, Limit(40))
        assert len(taken) == 40
        assert sum(message.entity == second for message in taken) == 3


def test_what_is_settled_is_gone_and_what_is_not_comes_back(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ["a", "b", "c"])
    with intake(scene, queue=queue) as found:
        taken = sorted(keys(take(found)))
        assert found.settle(taken[:1]) == {taken[0]}
        assert found.settle(taken[:1]) == set()
        assert found.present(taken) == set(taken[1:])
    # Closing gives back what was held, and counts no delivery.
    with intake(scene, queue=queue) as again:
        assert keys(take(again)) == set(taken[1:])


def test_messages_that_are_known_do_not_count(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, [f"m{n}" for n in range(6)])
    with intake(scene, queue=queue) as found:
        taken = take(found, Limit(2), known=lambda key: key.number <= 3)
        assert {message.number for message in taken} >= {1, 2, 3, 4, 5}


def test_a_session_is_read_in_order_and_let_go_when_it_is_empty(scene: StreamScene) -> None:
    queue = scene.queue(RequiresSession=True)
    for number in range(6):
        scene.send(queue, [f"a{number}"], session_id="a")
        scene.send(queue, [f"b{number}"], session_id="b")
    with intake(scene, queue=queue) as found:
        seen: dict[str | None, list[int]] = {}
        for _ in range(4):
            lot = take(found, Limit(4))
            for message in lot:
                seen.setdefault(message.session_id, []).append(message.number)
            assert found.settle(keys(lot)) == keys(lot)
        assert {name: sorted(numbers) == numbers for name, numbers in seen.items()} == {"a": True, "b": True}
        assert sum(map(len, seen.values())) == 12
        take(found)
        with intake(scene, queue=queue) as another:
            scene.send(queue, ["late"], session_id="a")
            assert len(take(another, wait_s=30.0)) + len(take(found)) == 1


def test_what_comes_after_the_end_is_given_back(scene: StreamScene) -> None:
    queue = scene.queue(EnablePartitioning=True)
    for number in range(20):
        scene.send(queue, [f"m{number}"], partition_key=f"k{number}")
    with intake(scene, queue=queue) as found:
        found.freeze()
        for number in range(20):
            scene.send(queue, [f"late{number}"], partition_key=f"k{number}")
        taken: list[Staged] = []
        while lot := take(found, wait_s=0.2):
            taken += lot
        assert len(keys(taken)) == 20
        assert all(b"late" not in message.payload for message in taken)
    with intake(scene, queue=queue) as again:
        lot = take(again)
        assert len(lot) == 40


def test_a_broker_that_is_away_has_nothing_until_it_is_back(scene: StreamScene, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "own") as broker:
        scene = StreamScene(None, broker, tmp_path)  # type: ignore[arg-type]
        queue = scene.queue()
        scene.send(queue, ["a"])
        with intake(scene, queue=queue) as found:
            held = keys(take(found))
            broker.kill()
            assert take(found, wait_s=0.1) == []
            assert found.settle(held) == set()
            assert found.present(held) == held  # Nobody can tell.
            broker.start(60)
            back: list[Staged] = []
            wait_for(lambda: bool(back.extend(take(found, wait_s=0.2)) or back), "the message again", 40)
            assert keys(back) == held
            assert found.settle(held) == held
            found.freeze()
            broker.kill()
            with pytest.raises(PipelineError):
                take(found, wait_s=0.1)


def test_what_could_not_be_set_aside_is_not_held_for_ever(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ["a"])
    with intake(scene, queue=queue) as found:
        held = keys(take(found))
        found.let_go(held)
        assert found.settle(held, Outcome.DEFER) == set()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "nowhere"}, "nowhere"),
        ({"subscribe": ""}, "No entity is named"),
    ],
)
def test_what_cannot_be_read_is_told(scene: StreamScene, options: dict[str, str], sentence: str) -> None:
    with intake(scene, **options) as found, pytest.raises(PipelineError, match=sentence):
        take(found)


def test_an_address_where_nobody_answers_is_told_at_once(scene: StreamScene) -> None:
    text = scene.broker.connection_string().replace(f":{scene.broker.amqp_port};", ":1;")
    found = Intake(SourceOptions.parse({"connectionString": text, "queue": "q"}))
    with pytest.raises(PipelineError, match="Is it running"):
        take(found)
    found.close()


def test_a_silent_address_holds_nobody_up_who_may_do_without_it(
    scene: StreamScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given a moment; who waited until it is given up would never end."""
    monkeypatch.setattr("twinbus.pipeline.reading.intake.CONNECT_S", 0.1)
    monkeypatch.setattr("twinbus.pipeline.namespace.TIMEOUT_S", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = scene.broker.connection_string().replace(str(scene.broker.amqp_port), str(silent.getsockname()[1]))
        given = {"connectionString": text, "queue": "q", "failOnUnreachable": "false"}
        found = Intake(SourceOptions.parse(given))
        assert [take(found, wait_s=0.1) for _ in range(3)] == [[], [], []]
        assert found.away is not None
        found.close()


def test_counts_of_what_waits_come_from_the_administration(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ["a", "b"])
    with intake(scene, queue=queue) as found:
        take(found, Limit(1))
        assert found.waiting() is None
        wait_for(lambda: found.waiting() == {queue: 2}, "a count")


# Setting aside


def test_what_is_set_aside_is_found_by_its_mark_and_completed_by_its_number(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, [f"m{n}" for n in range(250)])
    with intake(scene, queue=queue, claimMode="defer", claimName="mine") as found:
        mine, others = Deferring(found, "mine"), Deferring(found, "others")
        claimed = set(mine.defer(mine.receive(Limit(240), 1.0)))
        assert len(claimed) == 240
        theirs = set(others.defer(others.receive(MANY, 1.0)))
        assert (mine.marked(), others.marked()) == (claimed, theirs)
        first = sorted(claimed)[:100]
        assert mine.complete(first) == set(first)
        # Some of these are gone already, which is as good as completing them.
        assert mine.complete(claimed) == claimed
        assert (mine.marked(), others.marked()) == (set(), theirs)


def test_a_queue_with_sessions_cannot_be_set_aside(scene: StreamScene) -> None:
    queue = scene.queue(RequiresSession=True)
    with (
        intake(scene, queue=queue, claimMode="defer", claimName="mine") as found,
        pytest.raises(PipelineError, match="requires sessions, which claimMode=defer cannot read"),
    ):
        take(found)


def test_the_release_command_gives_back_what_was_set_aside(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ["a", "b"])
    with intake(scene, queue=queue, claimMode="defer", claimName="mine") as found:
        setting = Deferring(found, "mine")
        assert len(setting.defer(setting.receive(MANY, 1.0))) == 2
    done = CliRunner().invoke(
        app, ["pipeline", "release", queue, "--claim", "mine", "--yes", "-c", scene.broker.connection_string()]
    )
    assert (done.exit_code, done.stdout) == (0, f"{queue}: 2 messages given back\n")
    with intake(scene, queue=queue) as found:
        assert len(take(found)) == 2


def test_a_subscription_cannot_be_released(scene: StreamScene) -> None:
    done = CliRunner().invoke(
        app, ["pipeline", "release", "t/Subscriptions/s", "--claim", "m", "-y", "-c", scene.broker.connection_string()]
    )
    assert done.exit_code == 1
    assert "is a subscription, to which nothing can be sent" in done.stderr


def test_more_is_held_than_one_link_may_have(scene: StreamScene) -> None:
    queue = scene.queue()
    for lot in range(4):
        scene.send(queue, [f"m{lot}-{n}" for n in range(2_000)])
    with intake(scene, queue=queue) as found:
        taken = take(found, Limit(7_500))
        assert len(keys(taken)) == 7_500
        assert found.settle(keys(taken)) == keys(taken)
        assert len(take(found, Limit(7_500))) == 500


def test_an_entity_that_fails_takes_nothing_from_the_others(scene: StreamScene) -> None:
    queue, deleted = scene.queue(), scene.queue()
    with intake(scene, subscribe=f"{queue},{deleted}") as found:
        take(found, wait_s=0.0)
        scene.broker.delete_queue(deleted)
        scene.send(queue, ["a"])
        assert keys(take(found, wait_s=30.0)) == {Key(queue, 1)}
        with pytest.raises(PipelineError, match=deleted):
            take(found, wait_s=0.1)
