"""What can be rehearsed: a table of drills, a module for each.

A scenario is a function from a stage to an ending; the stage is set by whoever runs it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from twinbus.drill.ending import Ending
from twinbus.drill.scenarios.active import active
from twinbus.drill.scenarios.backlog_full import backlog_full
from twinbus.drill.scenarios.blackhole import blackhole
from twinbus.drill.scenarios.both_down import both_down
from twinbus.drill.scenarios.disaster import disaster
from twinbus.drill.scenarios.flap import flap
from twinbus.drill.scenarios.outage import outage
from twinbus.drill.scenarios.passive import passive
from twinbus.drill.scenarios.relay import CONFIGS as RELAYS
from twinbus.drill.scenarios.relay import relay
from twinbus.drill.scenarios.replacement import replacement
from twinbus.drill.scenarios.slow import slow
from twinbus.drill.scenarios.spark_crash import spark_crash
from twinbus.drill.scenarios.store import store
from twinbus.drill.scenarios.syphon_crash import syphon_crash
from twinbus.drill.scenarios.token_service import drill_token_service
from twinbus.drill.stage import Stage, config_of
from twinbus.drill.traffic import DESTINATIONS


@dataclass(frozen=True, slots=True)
class Scenario:
    """One drill."""

    play: Callable[[Stage], Awaitable[Ending]]
    tells: str  # What happens, in a sentence.
    outage_s: float = 10.0  # How long whatever is broken is broken, unless somebody says otherwise.
    options: tuple[str, ...] = ()  # Of the brokers.
    configs: tuple[str, str] | None = None  # Of the brokers, if they need more than the usual entities.
    may_use_spark: bool = False  # Spark can drain the backlog and prove the result.
    by_spark: bool = False  # It does, unless somebody says otherwise.
    needs_spark: bool = False  # It is about Spark.
    on_a_pair_that_is_up: bool = False


BOTH = (config_of(DESTINATIONS), config_of(DESTINATIONS))  # The same entities in both namespaces.
SCENARIOS: dict[str, Scenario] = {
    "outage": Scenario(
        outage,
        "The primary is killed under its senders and comes back.",
        may_use_spark=True,
        by_spark=True,
        on_a_pair_that_is_up=True,
    ),
    "disaster": Scenario(
        disaster,
        "The primary never returns: what only it held is lost and listed. With --returns it does, later.",
        outage_s=8.0,
    ),
    "replacement": Scenario(
        replacement,
        "The primary never returns, and the pair is moved to another namespace, under its senders.",
        outage_s=5.0,
    ),
    "store": Scenario(
        store,
        "One messaging store of the primary is down: only what lies on it fails over.",
        outage_s=8.0,
        options=("--stores", "3"),
        may_use_spark=True,
    ),
    "flap": Scenario(
        flap,
        "The primary goes and comes back several times, as the seed says.",
        outage_s=9.0,
        may_use_spark=True,
        on_a_pair_that_is_up=True,
    ),
    "blackhole": Scenario(
        blackhole,
        "Connections to the primary stay, and nothing answers, until it heals.",
        may_use_spark=True,
        on_a_pair_that_is_up=True,
    ),
    "slow": Scenario(
        slow,
        "The primary answers, but later than an attempt may take.",
        may_use_spark=True,
        on_a_pair_that_is_up=True,
    ),
    "backlog-full": Scenario(
        backlog_full,
        "The primary is away, one backlog queue is full and then all are, until there is room again.",
        options=("--stores", "3", "--faults"),
        may_use_spark=True,
    ),
    "both-down": Scenario(
        both_down,
        "Both namespaces are gone: senders go on by their outbox, and the order of sessions is kept.",
        outage_s=6.0,
    ),
    "syphon-crash": Scenario(
        syphon_crash,
        "The process that brings the backlog home is killed in the midst, four times, and started again.",
        outage_s=5.0,
    ),
    "spark-crash": Scenario(
        spark_crash,
        "Spark brings the backlog home, and is killed in the midst, twice, and started again.",
        outage_s=5.0,
        needs_spark=True,
    ),
    "active": Scenario(
        active,
        "Each message is sent to both namespaces; one of them is killed and comes back.",
        outage_s=6.0,
        configs=BOTH,
    ),
    "passive": Scenario(
        passive,
        "Messages go to one namespace, and to the other one when that is killed.",
        outage_s=6.0,
        configs=BOTH,
    ),
    "relay": Scenario(
        relay,
        "A service is called through two relays; the one that its callers use is killed and comes back.",
        outage_s=6.0,
        configs=RELAYS,
    ),
    "token-service": Scenario(
        drill_token_service,
        "The service that hands out tokens is away for longer than a token lives.",
        outage_s=4.0,
    ),
}
