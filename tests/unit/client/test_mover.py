"""What becomes of each message of a lot, as the mover's table has it."""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.client.diverting import RestoreError
from twinbus.client.errors import CONNECTION_LOST, ClientError, of_several
from twinbus.client.mover import NOT_RETRYABLE, Ready, move

BUSY = ClientError("com.microsoft:server-busy", "busy")
NOT_FOUND = ClientError("amqp:not-found", "no such queue")
LOST = ClientError("com.microsoft:message-lock-lost", "late")
GONE = ClientError(CONNECTION_LOST, "nobody is there")


class World:
    """A source and a destination in one; messages are `PATH/NAME`, and what happens to them is in their names."""

    def __init__(self, **answers: ClientError) -> None:
        self.answers = answers
        self.log: list[str] = []

    def restore(self, held: str) -> Ready:
        path, name = held.split("/")
        if name == "unreadable":
            raise RestoreError("NoPath", "it has no path")
        return Ready(path, name.encode())

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        names = [payload.decode() for payload in payloads]
        self.log.append(f"send {path} {names}")
        if failed := {at: self.answers[name] for at, name in enumerate(names) if name in self.answers}:
            raise of_several(failed, len(names))

    async def complete(self, held: Sequence[str]) -> None:
        self.log.append(f"complete {list(held)}")
        if failed := {at: LOST for at, each in enumerate(held) if each.endswith("late")}:
            raise of_several(failed, len(held))

    async def set_aside(self, held: str, reason: str, description: str) -> None:
        self.log.append(f"set aside {held} {reason}")


async def test_what_arrived_is_completed_and_nothing_else() -> None:
    world = World(full=BUSY)
    moved = await move(world, world, ["orders/a", "orders/full", "orders/b"])
    assert world.log == ["send orders ['a', 'full', 'b']", "complete ['orders/a', 'orders/b']"]
    assert moved.done == ["orders/a", "orders/b"]
    assert moved.moved == {"orders": 2}
    assert moved.waiting == {"orders": ["orders/full"]}
    assert moved.blocked == {"orders": BUSY}
    assert not moved.is_gone


async def test_what_cannot_be_restored_or_is_refused_for_good_is_set_aside() -> None:
    world = World(wrong=NOT_FOUND)
    moved = await move(world, world, ["orders/unreadable", "orders/wrong", "orders/a"])
    assert [held for held, _ in moved.set_aside] == ["orders/unreadable", "orders/wrong"]
    assert world.log[0] == "set aside orders/unreadable NoPath"
    assert world.log[-1] == f"set aside orders/wrong {NOT_RETRYABLE}"
    assert moved.set_aside[1][1] == "'orders' refuses the message: amqp:not-found: no such queue"
    assert moved.failed == [("orders/wrong", NOT_FOUND)]
    assert not moved.blocked


async def test_what_arrived_and_could_not_be_completed_is_doubled() -> None:
    world = World()
    moved = await move(world, world, ["orders/late", "orders/a"])
    assert (moved.doubled, moved.done, moved.problem) == (["orders/late"], ["orders/a"], LOST)


async def test_a_destination_that_is_passed_over_is_not_sent_to() -> None:
    world = World()
    moved = await move(world, world, ["orders/a", "carts/b"], passed_over={"orders"})
    assert world.log == ["send carts ['b']", "complete ['carts/b']"]
    assert moved.waiting == {"orders": ["orders/a"]}
    assert not moved.blocked


async def test_a_destination_at_which_nobody_answers_is_gone() -> None:
    world = World(a=GONE)
    moved = await move(world, world, ["orders/a"])
    assert moved.is_gone
    assert moved.waiting == {"orders": ["orders/a"]}


async def test_without_messages_nothing_happens() -> None:
    world = World()
    assert (await move(world, world, [])).received == 0
    assert world.log == []
