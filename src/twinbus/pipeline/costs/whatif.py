"""What if: the same traffic unpaired, paired, passively or actively replicated, reckoned before anything runs.

Pure arithmetic over traffic that was metered or that somebody has in mind; reading journals is `metering`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import product
from typing import NamedTuple

from twinbus.model.address import is_backlog
from twinbus.pipeline.costs.metering import Hour, Meter, Model, units_of
from twinbus.pipeline.costs.prices import MONTH_HOURS, Charge, Month, Prices, charges

DAY_S = 86_400
HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an application asks of its entities in some time, however they are kept available."""

    messages: int
    send_units: int
    sent_bytes: int
    deliveries: int
    delivery_units: int
    delivered_bytes: int
    settles: int
    polls: int = 0  # Receives of its own that find nothing.
    forward_units: int = 0
    others: int = 0  # Renewals, peeks, session states and the like, which one of the models bills.

    @classmethod
    def imagined(cls, messages: int, size: int, deliveries: int = 1, polls: int = 0) -> Traffic:
        """Messages of one size, each of them received so often, in peek-lock mode."""
        received = messages * deliveries
        return cls(
            messages=messages,
            send_units=messages * units_of(size),
            sent_bytes=messages * size,
            deliveries=received,
            delivery_units=received * units_of(size),
            delivered_bytes=received * size,
            settles=received,
            polls=polls,
        )

    @classmethod
    def metered(cls, meters: Iterable[Meter]) -> Traffic:
        """What the application itself asked for in a run that was not actively replicated.

        What pairing added is left out: fetching from the backlog, the way home, pings and the syphon's polls.
        """
        readings = list(meters)
        sent = [found for found in readings if found.stage in ("sent", "diverted")]
        home = [found for found in readings if not is_backlog(found.entity)]
        delivered = [found for found in home if found.stage == "delivered"]
        others = ("renew", "session", "peek", "delete", "manage", "cancel")
        return cls(
            messages=sum(found.times for found in sent),
            send_units=sum(found.units for found in sent),
            sent_bytes=sum(found.bytes for found in sent),
            deliveries=sum(found.times for found in delivered),
            delivery_units=sum(found.units for found in delivered),
            delivered_bytes=sum(found.bytes for found in delivered),
            settles=_times(home, "settle"),
            polls=_times(home, "empty_receive"),
            forward_units=sum(found.units for found in home if found.kind == "forward"),
            others=_times(home, *others),
        )

    def scaled(self, part: int, whole: int) -> Traffic:
        """As much of everything as `part` is of `whole`, which may be more than all; rounded down."""
        return Traffic(*(getattr(self, name) * part // max(whole, 1) for name in self.__slots__))


def _times(meters: Iterable[Meter], *kinds: str) -> int:
    return sum(found.times for found in meters if found.kind in kinds)


@dataclass(frozen=True, slots=True)
class Setting:
    """For how long, and how a pair is set up meanwhile."""

    period_s: int = 30 * DAY_S
    outage_s: int = 0
    backlog_queues: int = 10
    ping_interval_s: int = 60
    poll_s: int | None = None  # As the model has it.
    entities: int = 1  # That the application sends to.
    clients: int = 1
    syphons: int = 1
    diverted: int | None = None  # So many messages, and pings, instead of those that the outage suggests.
    pings: int | None = None
    probe: bool = False  # A message is scheduled and cancelled, instead of a ping.


class Item(NamedTuple):
    """A part of an estimate."""

    what: str
    operations: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one way of keeping sends available comes to."""

    shape: str
    setting: Setting
    items: tuple[Item, ...]
    connections: int
    namespaces: int

    @property
    def operations(self) -> int:
        """All operations."""
        return sum(item.operations for item in self.items)

    @property
    def bytes(self) -> int:
        """All bytes, into the namespaces and out of them."""
        return sum(item.bytes for item in self.items)

    def charges(self, prices: Prices, tier: str | None = None, messaging_units: int = 1) -> list[Charge]:
        """What it costs over the whole period; a period is taken as one month, or as several alike."""
        hours = Decimal(self.setting.period_s) / HOUR_S
        months = max(Decimal(1), hours / MONTH_HOURS)
        fetched = sum(item.bytes for item in self.items if item.what == "fetched from the backlog")
        month = Month(
            operations=int(self.operations / months),
            hours=int(hours / months),
            connections=Decimal(self.connections) * (hours / months) / MONTH_HOURS,
            namespaces=self.namespaces,
            stage_bytes={"fetched": int(fetched / months)},
        )
        found = charges(month, prices, prices.tier(tier), messaging_units)
        return [line._replace(quantity=line.quantity * months, amount=line.amount * months) for line in found]


def unpaired(traffic: Traffic, setting: Setting, model: Model) -> Estimate:
    """One namespace; what is sent during an outage is sent afterwards, or the application gives up."""
    return Estimate("unpaired", setting, _carried(traffic, model), setting.clients, 1)


def paired(traffic: Traffic, setting: Setting, model: Model) -> Estimate:
    """Sends go to a backlog during an outage and come home after it; receivers read the primary."""
    away = _during_outage(traffic, setting)
    settles = int("settle" in model.billed)
    one_ping = sum(kind in model.billed for kind in ("schedule", "cancel")) if setting.probe else 1
    pings = setting.pings
    if pings is None:
        pings = setting.entities * setting.clients * (setting.outage_s // setting.ping_interval_s)
    polls = setting.syphons * setting.backlog_queues * (setting.period_s // (setting.poll_s or model.poll_s))
    added = (
        Item("diverted to the backlog", away.send_units, away.sent_bytes),
        Item("fetched from the backlog", away.send_units, away.sent_bytes),
        Item("completed in the backlog", away.messages * settles),
        Item("pings", pings * one_ping),
        Item("idle syphons", polls),
    )
    # A paired client has a connection of its own to each namespace beside the SDK's, and so has a syphon.
    connections = setting.clients * 3 + setting.syphons * 2
    return Estimate("paired", setting, _carried(traffic, model) + added, connections, 2)


def passive(traffic: Traffic, setting: Setting, model: Model) -> Estimate:
    """A message goes to the active namespace, or to the other one; receivers read both."""
    items = (*_carried(traffic, model), Item("empty receives at the backup", traffic.polls))
    return Estimate("passive", setting, items, setting.clients * 2, 2)


def active(traffic: Traffic, setting: Setting, model: Model) -> Estimate:
    """Every message goes to both namespaces, and receivers read both; during an outage there is one copy."""
    away = _during_outage(traffic, setting)
    copies = replace(
        traffic,
        messages=traffic.messages - away.messages,
        send_units=traffic.send_units - away.send_units,
        sent_bytes=traffic.sent_bytes - away.sent_bytes,
        deliveries=traffic.deliveries - away.deliveries,
        delivery_units=traffic.delivery_units - away.delivery_units,
        delivered_bytes=traffic.delivered_bytes - away.delivered_bytes,
        settles=traffic.settles - away.settles,
    )
    items = (*_carried(traffic, model), *_carried(copies, model, " (second copies)"))
    return Estimate("active", setting, items, setting.clients * 2, 2)


SHAPES = {"unpaired": unpaired, "paired": paired, "passive": passive, "active": active}


def compare(traffic: Traffic, settings: Sequence[Setting], model: Model) -> list[Estimate]:
    """Every shape under every setting; once, where a setting changes nothing for a shape."""
    found: list[Estimate] = []
    for name, reckon in SHAPES.items():
        seen = set()
        for setting in settings:
            estimate = reckon(traffic, setting, model)
            if name == "paired" or (setting.period_s, estimate.items) not in seen:
                found.append(estimate)
            seen.add((setting.period_s, estimate.items))
    return found


def as_it_was(setting: Setting, meters: Sequence[Meter], hours: Sequence[Hour]) -> Setting:
    """How long a metered run was, what was diverted and pinged in it, and to how many entities it sent."""
    moments = [datetime.fromisoformat(hour.hour) for hour in hours]
    span_s = int((max(moments) - min(moments)).total_seconds()) + HOUR_S if moments else HOUR_S
    sent_to = {(found.namespace, found.entity) for found in meters if found.stage in ("sent", "moved")}
    diverted = sum(found.times for found in meters if found.stage == "diverted")
    return replace(
        setting,
        period_s=span_s,
        diverted=diverted if setting.diverted is None else setting.diverted,
        pings=_times(meters, "ping"),
        entities=max(1, len(sent_to)),
    )


def lasting(traffic: Traffic, setting: Setting, period_s: int | None, metered: bool) -> tuple[Traffic, Setting]:
    """The same over another period: metered traffic goes on as it was, what was thought of is for all of it."""
    if period_s is None:
        return traffic, setting
    if metered:
        traffic = traffic.scaled(period_s, setting.period_s)
    return traffic, replace(setting, period_s=period_s)


def settings_of(
    usual: Setting, backlog_queues: Sequence[int], ping_intervals_s: Sequence[int], outages_s: Sequence[int]
) -> list[Setting]:
    """Every combination of what is to be tried; what is not named stays as it usually is.

    Another outage or ping interval takes the place of what was counted.
    """
    if outages_s:
        usual = replace(usual, diverted=None, pings=None)
    elif ping_intervals_s:
        usual = replace(usual, pings=None)
    combinations = product(
        outages_s or [usual.outage_s],
        backlog_queues or [usual.backlog_queues],
        ping_intervals_s or [usual.ping_interval_s],
    )
    return [
        replace(usual, outage_s=outage, backlog_queues=queues, ping_interval_s=interval)
        for outage, queues, interval in combinations
    ]


def _during_outage(traffic: Traffic, setting: Setting) -> Traffic:
    """What falls into the outage; if nobody counted, as much as if the traffic is as dense there as elsewhere."""
    messages = setting.diverted
    if messages is None:
        messages = traffic.messages * min(setting.outage_s, setting.period_s) // max(setting.period_s, 1)
    return traffic.scaled(min(messages, traffic.messages), traffic.messages)


def _carried(traffic: Traffic, model: Model, which: str = "") -> tuple[Item, ...]:
    def billed(kind: str, operations: int) -> int:
        return operations if kind in model.billed else 0

    return (
        Item(f"sent{which}", traffic.send_units, traffic.sent_bytes),
        Item(f"received{which}", traffic.delivery_units, traffic.delivered_bytes),
        Item(f"settled{which}", billed("settle", traffic.settles)),
        Item(f"empty receives{which}", billed("empty_receive", traffic.polls)),
        Item(f"forwarded{which}", billed("forward", traffic.forward_units)),
        Item(f"other calls{which}", billed("renew", traffic.others)),
    )
