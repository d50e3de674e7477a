"""`twinbus entity`: queues listed, shown, created, changed and deleted.

Whether a setting is allowed is for the namespace to say. Entities of other kinds will be told by `kind` in what is
printed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output, Table
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean, counted, duration, iso, moment
from twinbus.cli.values import Duration, parse_duration
from twinbus.client import ClientError
from twinbus.client.descriptions import QueueEntry, rights_named
from twinbus.model.duration import format_duration
from twinbus.model.entity import EntityStatus, QueueDescription

EXISTS = "com.microsoft:entity-already-exists"

entity = typer.Typer(no_args_is_help=True, help="List, show, create, change and delete queues.")


def _duration_option(text: str) -> Any:
    return typer.Option(parser=parse_duration, metavar="DURATION", help=text)


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the queue.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
# Settings. What is not given stays as it is, or gets the service's default.
LockOption = Annotated[Duration | None, _duration_option("How long a message is locked: 5s to 5m.")]
TtlOption = Annotated[Duration | None, _duration_option("Longest time to live of a message.")]
IdleOption = Annotated[Duration | None, _duration_option("Delete the queue when it was not used for so long.")]
WindowOption = Annotated[Duration | None, _duration_option("How long message ids are remembered: 20s to 7d.")]
DeliveriesOption = Annotated[
    int | None, typer.Option("--max-delivery-count", min=1, help="Deliveries before a message is dead.")
]
SizeOption = Annotated[int | None, typer.Option("--max-size-mb", min=1, help="Quota in megabytes, such as 1024.")]
DeadLetterOption = Annotated[
    bool | None, typer.Option(help="Whether expired messages become dead letters or vanish.", show_default=False)
]
StatusOption = Annotated[
    EntityStatus | None, typer.Option(case_sensitive=False, help="Whether the queue accepts sends and receives.")
]
ForwardOption = Annotated[str | None, typer.Option(help="Forward messages to this entity; empty for no longer.")]
ForwardDeadOption = Annotated[str | None, typer.Option(help="Forward dead letters; empty for no longer.")]
MetadataOption = Annotated[str | None, typer.Option(help="A remark that is kept with the queue.")]


@entity.command("list")
@command
async def list_entities(
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """List queues and how many messages they hold."""
    output = Output(json)
    headings = ("NAME", "STATUS", "ACTIVE", "SCHEDULED", "DEAD", "BYTES", "LOCK", "TTL", "DELIVERIES")
    table = Table(output, headings, numbers=("ACTIVE", "SCHEDULED", "DEAD", "BYTES", "DELIVERIES"))
    rows: list[list[str]] = []
    async with namespace(connection_string, ca, http_port).administer() as administration:
        async for entry in administration.queues():
            if json:
                output.record(document(entry))
            rows.append(_row(entry))
    if json:
        return
    table.rows(rows)
    output.remark(f"{counted(len(rows), 'queue')}.")


@entity.command("show")
@command
async def show_entity(
    name: NameArgument,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show all settings and counts of a queue."""
    async with namespace(connection_string, ca, http_port).administer() as administration:
        _show(Output(json), await administration.queue(name))


@entity.command("create")
@command
async def create_entity(
    name: NameArgument,
    lock_duration: LockOption = None,
    max_delivery_count: DeliveriesOption = None,
    ttl: TtlOption = None,
    dead_letter_on_expiration: DeadLetterOption = None,
    max_size_mb: SizeOption = None,
    sessions: Annotated[bool, typer.Option("--sessions", help="Messages belong to sessions.")] = False,
    duplicate_detection: Annotated[
        bool, typer.Option("--duplicate-detection", help="Drop a message whose id was seen within the window.")
    ] = False,
    duplicate_window: WindowOption = None,
    partitioned: Annotated[bool, typer.Option("--partitioned", help="Spread the queue over stores.")] = False,
    status: StatusOption = None,
    auto_delete_on_idle: IdleOption = None,
    forward_to: ForwardOption = None,
    forward_dead_letters_to: ForwardDeadOption = None,
    metadata: MetadataOption = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Leave a queue of that name as it is.")] = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Create a queue."""
    wanted = _changed(
        QueueDescription(name=name, requires_session=sessions, requires_duplicate_detection=duplicate_detection,
                         partitioned=partitioned),
        lock_duration_ms=lock_duration, max_delivery_count=max_delivery_count, default_ttl_ms=ttl,
        dead_letter_on_expiration=dead_letter_on_expiration, max_size_mb=max_size_mb,
        duplicate_window_ms=duplicate_window, status=status, auto_delete_on_idle_ms=auto_delete_on_idle,
        forward_to=forward_to, forward_dead_letters_to=forward_dead_letters_to, user_metadata=metadata,
    )  # fmt: skip
    output = Output(json)
    async with namespace(connection_string, ca, http_port).administer() as administration:
        try:
            created = await administration.create_queue(wanted)
        except ClientError as error:
            if error.condition != EXISTS or not if_missing:
                raise
            output.remark(f"'{name}' exists already and was left as it is.")
            return
    _done(output, f"Created '{created.description.name}'.", created)


@entity.command("update")
@command
async def update_entity(
    name: NameArgument,
    lock_duration: LockOption = None,
    max_delivery_count: DeliveriesOption = None,
    ttl: TtlOption = None,
    dead_letter_on_expiration: DeadLetterOption = None,
    max_size_mb: SizeOption = None,
    duplicate_window: WindowOption = None,
    status: StatusOption = None,
    auto_delete_on_idle: IdleOption = None,
    forward_to: ForwardOption = None,
    forward_dead_letters_to: ForwardDeadOption = None,
    metadata: MetadataOption = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Change settings of a queue; what is not named stays as it is."""
    async with namespace(connection_string, ca, http_port).administer() as administration:
        old = (await administration.queue(name)).description
        new = _changed(
            old, lock_duration_ms=lock_duration, max_delivery_count=max_delivery_count, default_ttl_ms=ttl,
            dead_letter_on_expiration=dead_letter_on_expiration, max_size_mb=max_size_mb,
            duplicate_window_ms=duplicate_window, status=status, auto_delete_on_idle_ms=auto_delete_on_idle,
            forward_to=forward_to, forward_dead_letters_to=forward_dead_letters_to, user_metadata=metadata,
        )  # fmt: skip
        if new == old:
            raise PromptError("Nothing would change: name a setting and a new value for it.")
        updated = await administration.update_queue(new)
    _done(Output(json), f"Updated '{updated.description.name}'.", updated)


@entity.command("delete")
@command
async def delete_entity(
    name: NameArgument,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Delete a queue with all messages in it."""
    async with namespace(connection_string, ca, http_port).administer() as administration:
        entry = await administration.queue(name)
        confirm(f"Delete '{name}' with {counted(_total(entry))} in it?", yes)
        await administration.delete_queue(name)
    _done(Output(json), f"Deleted '{name}' with {counted(_total(entry))}.", entry)


def _changed(queue: QueueDescription, **settings: Any) -> QueueDescription:
    """The description with the settings that were given; an empty text takes one away."""
    given: dict[str, Any] = {
        name: value if value != "" else None for name, value in settings.items() if value is not None
    }
    return replace(queue, **given)


def _total(entry: QueueEntry) -> int:
    counts = entry.counts
    return counts.active + counts.scheduled + counts.dead_letter + counts.transfer_dead_letter


def _done(output: Output, sentence: str, entry: QueueEntry) -> None:
    if output.as_json:
        output.record(document(entry))
    else:
        output.line(sentence)


def _row(entry: QueueEntry) -> list[str]:
    queue, counts = entry.description, entry.counts
    sizes = (counts.active, counts.scheduled, counts.dead_letter, counts.size_bytes)
    times = (duration(queue.lock_duration_ms), duration(queue.default_ttl_ms))
    return [clean(queue.name), queue.status.value, *map(str, sizes), *times, str(queue.max_delivery_count)]


def _show(output: Output, entry: QueueEntry) -> None:
    told = document(entry)
    if output.as_json:
        output.record(told)
        return
    queue = entry.description
    for name in ("lock_duration", "default_time_to_live", "duplicate_window", "auto_delete_on_idle"):
        told[name] = duration(getattr(queue, _DURATIONS[name]))
    for name, at_ms in (("created", queue.created_at_ms), ("updated", queue.updated_at_ms)):
        told[f"{name}_at"] = moment(at_ms)
    told["accessed_at"] = moment(entry.accessed_at_ms)
    counts = told.pop("counts")
    rules = [f"{rule['name']} ({', '.join(rule['rights'])})" for rule in told.pop("authorization_rules")]
    told |= {f"{name}_messages": count for name, count in counts.items()} | {"authorization_rules": ", ".join(rules)}
    output.facts({name.replace("_", " "): _word(value) for name, value in told.items()})


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else clean(str(value))


_DURATIONS = {
    "lock_duration": "lock_duration_ms",
    "default_time_to_live": "default_ttl_ms",
    "duplicate_window": "duplicate_window_ms",
    "auto_delete_on_idle": "auto_delete_on_idle_ms",
}


def document(entry: QueueEntry) -> dict[str, Any]:
    """A queue for scripts. Of its authorization rules only names and rights; `twinbus keys --show` has the keys."""
    queue, counts = entry.description, entry.counts
    return {
        "kind": "queue",
        "name": queue.name,
        "status": queue.status.value,
        **{name: format_duration(getattr(queue, attribute)) for name, attribute in _DURATIONS.items()},
        "max_delivery_count": queue.max_delivery_count,
        "max_size_mb": queue.max_size_mb,
        "requires_session": queue.requires_session,
        "requires_duplicate_detection": queue.requires_duplicate_detection,
        "dead_letter_on_expiration": queue.dead_letter_on_expiration,
        "partitioned": queue.partitioned,
        "forward_to": queue.forward_to,
        "forward_dead_letters_to": queue.forward_dead_letters_to,
        "metadata": queue.user_metadata,
        "created_at": iso(queue.created_at_ms),
        "updated_at": iso(queue.updated_at_ms),
        "accessed_at": iso(entry.accessed_at_ms),
        "size_bytes": counts.size_bytes,
        "counts": {
            "active": counts.active,
            "scheduled": counts.scheduled,
            "dead_letter": counts.dead_letter,
            "transfer_dead_letter": counts.transfer_dead_letter,
        },
        "authorization_rules": [
            {"name": rule.name, "rights": rights_named(rule.rights)} for rule in queue.authorization_rules
        ],
    }
