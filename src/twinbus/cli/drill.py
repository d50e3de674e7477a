"""`twinbus drill`: an outage on purpose, watched, and judged at the end.

What happens in a drill is told in `twinbus.drill.scenarios`; here it is started and shown.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from twinbus.cli import interruption
from twinbus.cli.drill_board import Board
from twinbus.cli.output import Output
from twinbus.cli.pairing import described
from twinbus.cli.running import PromptError, command, fail
from twinbus.cli.showing import clean
from twinbus.cli.values import Duration, parse_duration
from twinbus.model.extras import MissingExtraError, missing, require
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.java import find_java, require_spark

if TYPE_CHECKING:
    from twinbus.drill.course import Moment
    from twinbus.drill.ending import Ending
    from twinbus.drill.playing import Papers
    from twinbus.drill.scenarios import Scenario
    from twinbus.drill.stage import Plan
    from twinbus.pair.description import PairDescription

USAGE = 2
SEEDS = 1_000_000
NEEDS_SPARK = ("spark-crash",)
BY_SPARK = ("outage", *NEEDS_SPARK)  # As `twinbus.drill.scenarios` has it, for those who cannot import it.
END_S, END_ON_A_PAIR_S = 1.5, 4.0  # How long a drill that is interrupted may clean up.

ScenarioArgument = Annotated[str, typer.Argument(help="What happens; `list` tells all of them.")]
ForOption = Annotated[
    Duration | None,
    typer.Option(
        "--for", parser=parse_duration, metavar="DURATION", help="How long what is broken stays so: 10s, 5m, 3d."
    ),
]
RateOption = Annotated[float, typer.Option(min=1, max=1000, help="Messages in a second.")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="What is left to chance is repeated with the same number.")]
LostAnswersOption = Annotated[
    int,
    typer.Option(min=0, max=100, help="How often an answer is lost before the outage, and its message sent twice."),
]
ReturnsOption = Annotated[
    str | None, typer.Option(help="Of a disaster: the primary comes back later with its old disk, or an empty one.")
]
KeepOption = Annotated[
    Path | None, typer.Option("--keep", help="Keep data, logs and the send log in this new directory.")
]
SparkOption = Annotated[
    bool | None,
    typer.Option(
        "--spark/--no-spark",
        help="Drain the backlog with Spark, and prove the result from the journals. Default: for an outage.",
        show_default=False,
    ),
]
ReportOption = Annotated[Path, typer.Option(help="Where the report is written, one HTML file.")]
RecordOption = Annotated[Path | None, typer.Option(help="A JSON file that tells how far it is, renewed each second.")]
StandingOption = Annotated[
    Path | None,
    typer.Option(help="Drill on this pair that is up, by its TOML description, on entities of the drill's own."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done on the pair and what is in the way; do nothing.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")]


@command
async def drill(
    scenario: ScenarioArgument = "outage",
    lasting: ForOption = None,
    rate: RateOption = 50.0,
    seed: SeedOption = None,
    lost_answers: LostAnswersOption = 0,
    returns: ReturnsOption = None,
    directory: KeepOption = None,
    spark: SparkOption = None,
    report: ReportOption = Path("twinbus-drill.html"),
    record: RecordOption = None,
    pair: StandingOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Break something on purpose under senders and receivers, mend it, and count what became of every message."""
    _require(scenario, spark, pair is not None)
    with interruption.at_once():  # The SDK and Spark take a while, and other commands need neither.
        from twinbus.drill.playing import Papers
        from twinbus.drill.scenarios import SCENARIOS
        from twinbus.drill.stage import Plan

    if scenario == "list":
        for name, known in SCENARIOS.items():
            typer.echo(f"{name:14} {known.tells}")
        return
    chosen = _chosen(scenario, SCENARIOS, pair is not None)
    if returns not in (None, "old", "empty") or (returns and scenario != "disaster"):
        fail("--returns is old or empty, and only a disaster knows it", USAGE)
    if dry_run and pair is None:
        fail("--dry-run is about a pair that is up: --pair FILE", USAGE)
    plan = Plan(
        scenario=scenario,
        outage_s=chosen.outage_s if lasting is None else lasting / 1000,
        rate=rate,
        seed=secrets.randbelow(SEEDS) if seed is None else seed,
        lost_answers=lost_answers,
        returns=returns,
    )
    _hush()
    # Brokers and Spark are the drill's own. What it made on a pair that is up, it must have the time to remove.
    interruption.children_too(END_S if pair is None else END_ON_A_PAIR_S)
    standing = None if pair is None else described(pair, None, None)
    if dry_run and standing is not None:
        await _rehearsed(plan, standing, record, Output(as_json))
        return
    by_spark = standing is None and _with_spark(spark, chosen)
    with ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(interruption.temporary_directory("twinbus-drill-"))
        else:
            directory.mkdir(parents=True)
        ending = await _played(plan, chosen, Papers(directory, report, record), by_spark, standing)
        _tell(ending, plan, report, as_json)
    if not ending.holds:
        raise typer.Exit(1)


def _hush() -> None:
    """What breaks here is meant to break, and the drill tells what happens in its own words."""
    logging.getLogger("twinbus.pair").setLevel(logging.ERROR)
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # It warns of children that were killed under its hands.


def _chosen(name: str, scenarios: dict[str, Scenario], is_standing: bool) -> Scenario:
    if name not in scenarios:
        fail(f"there is no drill '{name}'; try: {', '.join(scenarios)}", USAGE)
    if is_standing and not scenarios[name].on_a_pair_that_is_up:
        able = (other for other, scenario in scenarios.items() if scenario.on_a_pair_that_is_up)
        fail(f"'{name}' breaks brokers, so it has its own; on a pair that is up there are: {', '.join(able)}", USAGE)
    return scenarios[name]


async def _rehearsed(plan: Plan, pair: PairDescription, record: Path | None, output: Output) -> None:
    """What would be done; exit code 1 if something is in the way."""
    from twinbus.drill.playing import rehearsed

    readiness = await rehearsed(plan, pair, record)
    if output.as_json:
        output.record({"steps": readiness.steps, "obstacles": readiness.obstacles, "ready": not readiness.obstacles})
    else:
        for step in readiness.steps:
            output.line(f"would {step}")
        for obstacle in readiness.obstacles:
            output.line(f"in the way: {clean(obstacle)}")
        output.line("not now" if readiness.obstacles else "ready")
    if readiness.obstacles:
        raise typer.Exit(1)


def _with_spark(asked: bool | None, scenario: Scenario) -> bool:
    """Whether Spark takes part."""
    if asked and not scenario.may_use_spark:
        fail("this drill does without Spark", USAGE)
    wanted = scenario.by_spark if asked is None else asked
    if wanted or scenario.needs_spark:
        _require_spark(can_be_left_out=not scenario.needs_spark)
    return wanted


def _require(scenario: str, spark: bool | None, is_standing: bool) -> None:
    """What a drill needs, before the SDK is imported that knows of all of them; in one sentence, with Spark."""
    if not missing("azure.servicebus"):
        return
    if spark or (spark is None and not is_standing and scenario in BY_SPARK):
        _require_spark(can_be_left_out=scenario not in NEEDS_SPARK)
    require("azure.servicebus")


def _require_spark(*, can_be_left_out: bool) -> None:
    """Said before anything is started: what is missing for Spark, or for the pictures of the report."""
    try:
        require_spark(os.environ, "matplotlib")
        find_java(os.environ)
    except (MissingExtraError, PipelineError) as problem:
        otherwise = "\n  With --no-spark, the drill does without Spark." if can_be_left_out else ""
        raise PromptError(f"{problem}{otherwise}") from None


async def _played(plan: Plan, scenario: Scenario, papers: Papers, spark: bool, pair: PairDescription | None) -> Ending:
    """The drill, on a board in a terminal, else as plain lines."""
    from twinbus.drill.brokers import BrokerFailedError
    from twinbus.drill.standing import BreachError

    try:
        return await _watched(plan, scenario, papers, spark, pair)
    except BreachError as breach:
        raise PromptError(f"The drill was ended: {breach}.") from None
    except (BrokerFailedError, PipelineError) as problem:
        raise PromptError(str(problem)) from None


async def _watched(plan: Plan, scenario: Scenario, papers: Papers, spark: bool, pair: PairDescription | None) -> Ending:
    from twinbus.drill.course import Course
    from twinbus.drill.playing import play

    console = Console(stderr=True)
    if console.is_terminal:
        course = Course(plan.scenario)
        with Live(Board(course, scenario.tells), console=console, refresh_per_second=5):
            return await play(plan, course, papers, spark=spark, pair=pair)

    def heard(moment: Moment) -> None:
        console.print(f"{moment.at_s:6.1f} s  {moment.what}", highlight=False, markup=False, soft_wrap=True)

    course = Course(plan.scenario, heard)
    course.say(f"seed {plan.seed}")
    return await play(plan, course, papers, spark=spark, pair=pair)


def _tell(ending: Ending, plan: Plan, report: Path, as_json: bool) -> None:
    if as_json:
        told = {} if ending.proof is None else {"proof": ending.proof.findings.document()}
        verdict = {**asdict(ending.verdict), "condemned": sorted(ending.verdict.condemned)}
        document = {"scenario": plan.scenario, "seed": plan.seed, **verdict, "suppressed": ending.suppressed}
        document |= {"remarks": ending.remarks, "broken": ending.broken, "holds": ending.holds, "report": str(report)}
        Output(as_json=True).record({**document, **told})
        return
    for line in ending.lines(report):
        typer.echo(line)
