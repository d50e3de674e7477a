"""Which one look-up can rule a rule out: an equality that must hold before anything else of its filter counts.

A probe never decides that a rule matches; the whole filter is asked then. Keeping rules by their probes is left to
`index`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.rules.compiler import Parameters, folded_parameters
from twinbus.rules.description import CorrelationFilter
from twinbus.rules.tree import Among, And, Comparison, Literal, Node, Parameter, Property
from twinbus.rules.values import NUMBER, TEXT, kind_of, plain
from twinbus.rules.view import system_property


class Probe(NamedTuple):
    """A property and the values of one kind of which it must have one."""

    system: bool
    name: str  # As the view has it: the table's name, or the lower-case name of an application property.
    kind: str
    values: tuple[Any, ...]
    # With a SQL filter another kind of value is an error, which the whole filter has to raise.
    strict: bool = False
    # Without the property the rest of a SQL filter is evaluated still, and may raise an error.
    alone: bool = True


def correlation_probes(found: CorrelationFilter) -> tuple[Probe, ...]:
    """One probe for each condition: any of them that fails rules the filter out."""
    system = [Probe(True, name, TEXT, (value,)) for name, value in found.system_conditions()]
    user = [(name.lower(), plain(value)) for name, value in found.properties.items() if value is not None]
    return (*system, *(Probe(False, name, kind_of(value), (value,)) for name, value in user if _is_key(value)))


def sql_probe(tree: Node, parameters: Parameters) -> tuple[Probe, ...]:
    """A probe if the filter begins with an equality or an IN list: what comes first is evaluated first."""
    first = tree.operands[0] if isinstance(tree, And) else tree
    match first:
        case Comparison("=", Property() as subject, other):
            nodes: tuple[Node, ...] = (other,)
        case Among(Property() as subject, choices, False):
            nodes = choices
        case _:
            return ()
    known = system_property(subject.name) if subject.system else None
    if subject.system and known is None:
        return ()
    given = folded_parameters(parameters)
    values = [_value(node, given) for node in nodes]
    kinds = {kind_of(value) for value in values}
    if len(kinds) != 1 or not kinds <= {TEXT, NUMBER} or not all(map(_is_key, values)):
        return ()
    name = known.name if known is not None else subject.name.lower()
    return (Probe(subject.system, name, kinds.pop(), tuple(values), strict=True, alone=first is tree),)


def _value(node: Node, parameters: dict[str, Any]) -> Any:
    match node:
        case Literal(value):
            return value
        case Parameter(name):
            return parameters.get(name.lower())
    return None


def _is_key(value: Any) -> bool:
    """Whether equal values are found by a look-up; a decimal may be a signalling NaN."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
