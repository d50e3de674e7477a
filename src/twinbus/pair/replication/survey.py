"""A look at two namespaces that are to hold the same entities: what one of them lacks, and what differs.

Changes nothing; `twinbus entity create --pair` creates in both. Backlog queues are left to `pair.survey`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from twinbus.client.atom import Administration
from twinbus.client.descriptions import Description
from twinbus.client.errors import ClientError
from twinbus.pair.description import PairDescription
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.replication.policy import Names
from twinbus.pair.survey import PairFound

BACKLOG = "/x-servicebus-transfer"
LOOK_S = 60.0
# What is each namespace's own: names, instants, and keys that must not be printed either.
_OWN = ("name", "topic", "created_at_ms", "updated_at_ms", "authorization_rules")
_REFERENCES = ("forward_to", "forward_dead_letters_to")

Found = Mapping[str, tuple[str, Description, list[Any]]]


async def differences(description: PairDescription, found: PairFound) -> list[str]:
    """What an operator of replicated entities should know, a sentence each."""
    if not (found.primary.reachable and found.secondary.reachable):
        return ["The entities of the two namespaces cannot be compared, because one cannot be reached."]
    namespaces = description.namespaces()
    try:
        async with asyncio.timeout(LOOK_S):
            first, second = await asyncio.gather(*(_entities(namespace) for namespace in namespaces))
    except (ClientError, TimeoutError) as problem:
        return [f"The entities of the two namespaces cannot be compared: {problem or 'no answer in time'}"]
    finally:
        await asyncio.gather(*(namespace.close() for namespace in namespaces), return_exceptions=True)
    return compare(first, second, Names(description.entities))


def compare(first: Found, second: Found, names: Names) -> list[str]:
    """One sentence for each entity that is not the same in both."""
    told = []
    expected = set()
    for key in sorted(first):
        name = first[key][0]
        other = names.path(name, 1)
        expected.add(other.lower())
        if other.lower() not in second:
            called = "" if other.lower() == key else f", where it would be '{other}'"
            told.append(f"'{name}' is missing in the secondary{called}.")
        elif parts := _different(first[key], second[other.lower()], names):
            told.append(f"'{name}' differs: {'; '.join(parts)}.")
    told += [f"'{second[key][0]}' is missing in the primary." for key in sorted(second.keys() - expected)]
    return told


def _different(
    one: tuple[str, Description, list[Any]], other: tuple[str, Description, list[Any]], names: Names
) -> list[str]:
    if type(one[1]) is not type(other[1]):
        return ["a queue in one namespace, and a topic in the other"]
    parts = []
    for each in fields(one[1]):
        here, there = getattr(one[1], each.name), getattr(other[1], each.name)
        if each.name in _REFERENCES and here is not None:
            here = names.entity(here, 1)
        if each.name not in _OWN and here != there:
            parts.append(f"{each.name} is {here} in the primary, and {there} in the secondary")
    if one[2] != other[2]:
        parts.append("its rules are not the same")
    return parts


async def _entities(namespace: RemoteNamespace) -> Found:
    found: dict[str, tuple[str, Description, list[Any]]] = {}
    async with await namespace.administer() as administration:
        async for queue in administration.queues():
            if BACKLOG not in queue.description.name.lower():
                found[queue.description.name.lower()] = (queue.description.name, queue.description, [])
        async for topic in administration.topics():
            name = topic.description.name
            found[name.lower()] = (name, topic.description, [])
            await _subscriptions(administration, name, found)
    return found


async def _subscriptions(
    administration: Administration, topic: str, found: dict[str, tuple[str, Description, list[Any]]]
) -> None:
    async for entry in administration.subscriptions(topic):
        path = entry.description.path
        rules = [replace(rule, created_at_ms=0) async for rule in administration.rules(path)]
        found[path.lower()] = (path, entry.description, sorted(rules, key=lambda rule: rule.name.lower()))
