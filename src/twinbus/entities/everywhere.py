"""What is done to an entity in all the stores on which its fragments lie, or not begun: made, changed, dropped.

What the catalog says of it, and who is told, is `namespace`'s business.
"""

from __future__ import annotations

from twinbus.entities.entity import AnyEntity
from twinbus.entities.fragments import call_all
from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.store.commands import Configure, Create, Drop, EntityName, QueueSettings


def check_reachable(entity: AnyEntity) -> None:
    """Refuse to begin while one of the stores is not there."""
    if entity.is_limited:
        raise BusError(
            Fault.STORE_UNAVAILABLE, f"A messaging store of '{entity.path}' is not available; retry.", definite=True
        )


def name_of(entity: AnyEntity, fragment: int) -> EntityName:
    """What the journal's readers call it."""
    return EntityName(entity.path, entity.kind.lower(), fragment)


async def make(entity: AnyEntity, settings: QueueSettings) -> None:
    """Make its queues. If one store fails, those that were made are dropped; the next start finds what is left."""
    check_reachable(entity)
    answers = await call_all(
        (each.store, Create(queue=each.number(SubQueue.MAIN), settings=settings, name=name_of(entity, each.index)))
        for each in entity.fragments
    )
    for answer in answers:
        if isinstance(answer, BusError):
            for fragment in entity.fragments:
                fragment.store.submit(Drop(queue=fragment.number(SubQueue.MAIN)))
            raise answer


async def configure(entity: AnyEntity, settings: QueueSettings) -> None:
    """Change its settings; when a store fails meanwhile, the same change once more brings it there too."""
    answers = await call_all(
        (each.store, Configure(queue=each.number(SubQueue.MAIN), settings=settings)) for each in entity.fragments
    )
    for answer in answers:
        if isinstance(answer, BusError):
            raise answer


async def drop(entity: AnyEntity) -> BusError | None:
    """Free what it holds; why a store could not, if so, which is then done when that returns."""
    drops = ((each.store, Drop(queue=each.number(SubQueue.MAIN))) for each in entity.fragments)
    return next((answer for answer in await call_all(drops) if isinstance(answer, BusError)), None)
