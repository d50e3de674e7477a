"""A store whose file was replaced: what the catalog has on it is made anew there, without messages.

When a store is opened is the broker's business; what the catalog does not know is freed by `registry`.
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

_log = EventLog(__name__)


def make_again(entities: Iterable[AnyEntity], index: int, held: Sequence[int]) -> None:
    """Have the store make those of its entities that it does not hold."""
    present = set(held)
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
                fragment.store.submit(Create(queue=number, settings=_settings(entity), name=name))


def _settings(entity: AnyEntity) -> QueueSettings:
    if isinstance(entity, Topic | Subscription):
        return entity.settings()
    return settings_of(entity.description)
