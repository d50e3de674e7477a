"""The tree of a filter or an action, and its way back to text.

Nodes are values: equal if they mean the same, wherever they stood in the text. Making them is left to `parser`, and
giving them a meaning to `compiler`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """Something that stands at a position of the text."""

    position: int = field(default=0, compare=False, kw_only=True)

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes it is made of."""
        return ()


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A text, a number, TRUE, FALSE or NULL."""

    value: Any


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """@name: a value that comes with the rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Property(Node):
    """A property of the message."""

    name: str
    system: bool = False


@dataclass(frozen=True, slots=True)
class Lookup(Node):
    """property(name): the application property whose name is calculated."""

    name: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class NewId(Node):
    """newid()."""


@dataclass(frozen=True, slots=True)
class Sign(Node):
    """+ or - before a value."""

    sign: str
    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """Two values and + - * / or % between them."""

    sign: str
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Condition(Node):
    """What is true, false or unknown, and so may be combined with NOT, AND and OR."""


@dataclass(frozen=True, slots=True)
class Comparison(Condition):
    """Two values and = <> < <= > or >= between them."""

    sign: str
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    """value IS [NOT] NULL."""

    operand: Node
    negated: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Among(Condition):
    """value [NOT] IN (choice, …)."""

    operand: Node
    choices: tuple[Node, ...]
    negated: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand, *self.choices)


@dataclass(frozen=True, slots=True)
class Like(Condition):
    """value [NOT] LIKE pattern [ESCAPE character]."""

    operand: Node
    pattern: Node
    escape: Node | None = None
    negated: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand, self.pattern) if self.escape is None else (self.operand, self.pattern, self.escape)


@dataclass(frozen=True, slots=True)
class Exists(Condition):
    """EXISTS(property)."""

    subject: Property

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.subject,)


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """NOT condition."""

    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class And(Condition):
    """Two or more conditions with AND between them."""

    operands: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.operands


@dataclass(frozen=True, slots=True)
class Or(Condition):
    """Two or more conditions with OR between them."""

    operands: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.operands


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """SET property = value."""

    target: Property
    value: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.target, self.value)


@dataclass(frozen=True, slots=True)
class Remove(Node):
    """REMOVE property."""

    target: Property

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.target,)


Statement = Assign | Remove


def is_condition(node: Node) -> bool:
    """Whether a node may stand where true, false or unknown is needed."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, Condition | Property | Parameter | Lookup)


def size_and_depth(node: Node) -> tuple[int, int]:
    """How many nodes a tree has, and how many levels; without recursion, since it judges trees of any depth."""
    size = depth = 0
    level = [node]
    while level:
        size += len(level)
        depth += 1
        level = [child for parent in level for child in parent.children]
    return size, depth
