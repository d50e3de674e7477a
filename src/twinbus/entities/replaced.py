"""A store whose file was replaced by an operator's word: what the catalog has on it is made anew there, empty.

Whether a store may be opened at all is the broker's decision; what the catalog does not know is `quarantine`'s part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinbus.entities.entity import AnyEntity
from twinbus.entities.everywhere import name_of
from twinbus.entities.queue import settings_of
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.model.address import SubQueue
from twinbus.model.logged import EventLog
from twinbus.store.commands import Create, QueueSettings
from twinbus.store.quarantine import Held

_log = EventLog(__name__)


def make_again(entities: Iterable[AnyEntity], index: int, held: Sequence[Held]) -> None:
    """Have the store make those of its entities that it does not hold."""
    present = {each.entity for each in held}
    for entity in entities:
        for fragment in entity.fragments:
            if fragment.store_index == index and fragment.entity not in present:
                _log.error(
                    "entity.remade",
                    "store {store} does not hold '{entity}' any more: it is made anew, empty",
                    store=index,
                    entity=entity.path,
                )
                number, name = fragment.number(SubQueue.MAIN), name_of(entity, fragment.index)
                fragment.store.submit(Create(queue=number, settings=settings_for(entity), name=name))


def settings_for(entity: AnyEntity) -> QueueSettings:
    """What a store needs to know of an entity of any kind."""
    if isinstance(entity, Topic | Subscription):
        return entity.settings()
    return settings_of(entity.description)
