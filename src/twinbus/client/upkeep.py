"""Twinbus' own JSON API as its clients use it: a namespace's state, stores, policies, purge, reset.

Goes over the administration's door; other namespaces do not offer it. The answers are described in docs/extensions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twinbus.client.atom import Administration, AtomError
from twinbus.model.duration import format_duration

_PREFIX = "$api"
PAGE = 250


async def is_offered(administration: Administration) -> bool:
    """Whether the namespace answers here at all, and to this policy."""
    try:
        await status(administration)
    except AtomError as error:
        if error.status < 500 or error.status == 501:
            return False
        raise
    return True


async def status(administration: Administration) -> dict[str, Any]:
    """The namespace with its stores, and what is known of its process."""
    return await administration.ask_json("GET", f"{_PREFIX}/status")


async def stores(administration: Administration) -> list[dict[str, Any]]:
    """The messaging stores and their states."""
    found: list[dict[str, Any]] = (await administration.ask_json("GET", f"{_PREFIX}/stores"))["stores"]
    return found


async def places(administration: Administration) -> dict[str, list[int]]:
    """The stores on which entities lie, for the first fifty of them."""
    found = await administration.ask_json("GET", f"{_PREFIX}/entities")
    return {entity["name"]: entity["stores"] for entity in found["entities"]}


async def journal(administration: Administration) -> dict[str, Any]:
    """How far the journal is in files, and where these are."""
    return await administration.ask_json("GET", f"{_PREFIX}/journal")


async def export_journal(administration: Administration) -> dict[str, Any]:
    """Have everything that was committed so far written to the journal's files; the same then."""
    return await administration.ask_json("POST", f"{_PREFIX}/journal/export", {})


async def begin_examination(
    administration: Administration, what: str, destination: str | None = None
) -> dict[str, Any]:
    """Have a running namespace verified (`verify`), or copied to a directory of its machine (`backup`)."""
    body = {} if destination is None else {"destination": destination}
    return await administration.ask_json("POST", f"{_PREFIX}/{what}", body)


async def examination(administration: Administration, what: str) -> dict[str, Any]:
    """How far the latest one is, or what came out of it."""
    return await administration.ask_json("GET", f"{_PREFIX}/{what}")


async def clients(administration: Administration) -> list[dict[str, Any]]:
    """The status records of paired clients and syphons that are alive."""
    found: list[dict[str, Any]] = (await administration.ask_json("GET", f"{_PREFIX}/clients"))["clients"]
    return found


async def put_client(administration: Administration, record: str, document: dict[str, Any]) -> None:
    """Say that a client is alive, and how it is."""
    await administration.ask_json("PUT", f"{_PREFIX}/clients/{record}", document)


async def remove_client(administration: Administration, record: str) -> None:
    """Say that a client has ended."""
    await administration.ask_json("DELETE", f"{_PREFIX}/clients/{record}")


async def create_hybrid_connection(administration: Administration, path: str) -> None:
    """Make a hybrid connection for senders with a token, unless there is one of this name."""
    address = f"{_PREFIX}/hybrid-connections"
    known = (await administration.ask_json("GET", address))["hybrid_connections"]
    if path.lower() not in {hybrid["name"].lower() for hybrid in known}:
        await administration.ask_json("PUT", f"{address}/{path}", {})


async def take_down(administration: Administration, number: int, reason: str | None) -> dict[str, Any]:
    """Have a store release its file; the store as it is then."""
    body = {} if reason is None else {"reason": reason}
    return await administration.ask_json("POST", f"{_PREFIX}/stores/{number}/down", body)


async def bring_up(administration: Administration, number: int) -> dict[str, Any]:
    """Have a store opened again; the store as it is then."""
    return await administration.ask_json("POST", f"{_PREFIX}/stores/{number}/up", {})


async def accept_store(administration: Administration, number: int) -> dict[str, Any]:
    """Have what lies in a store's place served, whatever the catalog knew of it; the store as it is then."""
    return await administration.ask_json("POST", f"{_PREFIX}/stores/{number}/accept", {})


async def replace_store(administration: Administration, number: int) -> dict[str, Any]:
    """Have an empty store made in the place of one that is given up; the store as it is then."""
    return await administration.ask_json("POST", f"{_PREFIX}/stores/{number}/replace", {"confirm": number})


async def orphans(administration: Administration) -> dict[str, Any]:
    """The `orphans` that are set aside because the catalog does not know them, and rows that are `unreadable`."""
    return await administration.ask_json("GET", f"{_PREFIX}/orphans")


async def orphan_messages(
    administration: Administration, number: int, part: int, sub_queue: str, start: int
) -> dict[str, Any]:
    """A page of an orphan's messages, and where the `next` one begins."""
    query = {"part": part, "sub_queue": sub_queue, "from": start, "top": PAGE}
    return await administration.ask_json("GET", f"{_PREFIX}/orphans/{number}/messages", query=query)


async def adopt(
    administration: Administration, number: int, *, name: str | None = None, forward_to: str | None = None
) -> str:
    """Have an orphan made an entity of the namespace again; its name."""
    body = {"as": name, "forward_to": forward_to}
    given = {key: value for key, value in body.items() if value is not None}
    return str((await administration.ask_json("POST", f"{_PREFIX}/orphans/{number}/adopt", given))["name"])


async def drop_orphan(administration: Administration, number: int, confirmed: str) -> dict[str, Any]:
    """Give up an orphan with all its messages."""
    return await administration.ask_json("POST", f"{_PREFIX}/orphans/{number}/drop", {"confirm": confirmed})


async def purge(administration: Administration, entity: str, sub_queue: str = "main") -> int:
    """Remove all messages that nobody has locked; how many these were."""
    body = {"entity": entity, "sub_queue": sub_queue}
    return int((await administration.ask_json("POST", f"{_PREFIX}/purge", body))["removed"])


async def redrive(
    administration: Administration, entity: str, *, where: str | None = None, limit: int | None = None
) -> dict[str, int]:
    """Send dead letters back to their own queue or subscription; how many were `moved` and how many `kept`."""
    body = {"entity": entity, "filter": where, "limit": limit}
    given = {key: value for key, value in body.items() if value is not None}
    return await administration.ask_json("POST", f"{_PREFIX}/redrive", given)


async def reset(administration: Administration, namespace: str) -> dict[str, int]:
    """Delete every entity and make again what the settings declare; how many were `deleted` and `created`."""
    return await administration.ask_json("POST", f"{_PREFIX}/reset", {"confirm": namespace})


async def clock(administration: Administration, advance_ms: int | None = None) -> dict[str, Any]:
    """What time it is in the namespace; moved forward first, if asked for."""
    if advance_ms is None:
        return await administration.ask_json("GET", f"{_PREFIX}/clock")
    return await administration.ask_json("POST", f"{_PREFIX}/clock", {"advance": format_duration(advance_ms)})


async def faults(administration: Administration) -> dict[str, Any]:
    """The faults on purpose that are `known`, and those that are going on."""
    return await administration.ask_json("GET", f"{_PREFIX}/faults")


async def begin_fault(
    administration: Administration,
    name: str,
    *,
    for_ms: int | None = None,
    delay_ms: int | None = None,
    store: int | None = None,
) -> dict[str, Any]:
    """Begin a fault on purpose; everything that is going on then."""
    body: dict[str, Any] = {}
    for key, value in (("for", for_ms), ("delay", delay_ms)):
        if value is not None:
            body[key] = format_duration(value)
    if store is not None:
        body["store"] = store
    return await administration.ask_json("PUT", f"{_PREFIX}/faults/{name}", body)


async def lift_faults(administration: Administration, name: str | None = None) -> int:
    """End a fault on purpose, or all of them; how many were going on."""
    address = f"{_PREFIX}/faults" if name is None else f"{_PREFIX}/faults/{name}"
    return int((await administration.ask_json("DELETE", address))["lifted"])


async def policies(administration: Administration, *, with_keys: bool = False) -> list[dict[str, Any]]:
    """The namespace's own policies, and where each came from."""
    found: list[dict[str, Any]] = (await administration.ask_json("GET", f"{_PREFIX}/policies"))["policies"]
    return [await policy(administration, each["name"]) for each in found] if with_keys else found


async def policy(administration: Administration, name: str) -> dict[str, Any]:
    """One of the namespace's policies, with its keys."""
    return await administration.ask_json("GET", f"{_PREFIX}/policies/{name}")


async def add_policy(administration: Administration, name: str, rights: Sequence[str]) -> dict[str, Any]:
    """A new policy of the namespace, with the keys that were made for it."""
    return await administration.ask_json("POST", f"{_PREFIX}/policies", {"name": name, "rights": list(rights)})


async def set_policy_rights(administration: Administration, name: str, rights: Sequence[str]) -> dict[str, Any]:
    """Give a policy other rights; the policy then."""
    return await administration.ask_json("PUT", f"{_PREFIX}/policies/{name}", {"rights": list(rights)})


async def rotate_policy(administration: Administration, name: str, key: str | None = None) -> dict[str, Any]:
    """Renew the `primary` or the `secondary` key, or else the primary, which becomes the secondary; the policy then."""
    body = {} if key is None else {"key": key}
    return await administration.ask_json("POST", f"{_PREFIX}/policies/{name}/rotate", body)


async def remove_policy(administration: Administration, name: str) -> str:
    """Remove a policy; its name as the namespace spells it."""
    return str((await administration.ask_json("DELETE", f"{_PREFIX}/policies/{name}"))["removed"])
