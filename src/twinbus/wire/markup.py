"""XML in and out: a reader that trusts nobody, and the escaping of what we write.

The reader refuses document types (and with them entities and external references) and bounds depth and number
of elements; what they mean is left to the module of each kind of entity, and how large a body may be to its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape

from twinbus.model.errors import BusError, Fault

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

MAX_DEPTH = 32
MAX_ELEMENTS = 5_000

# Whatever XML 1.0 cannot carry, not even as a character reference.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class Element:
    """An element with its name as `{namespace}name`, and the text directly inside it."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def child(self, name: str) -> Element | None:
        """The first child of that name."""
        return next(self.all(name), None)

    def all(self, name: str) -> Iterator[Element]:
        """The children of that name."""
        return (child for child in self.children if child.name == name)


class _Reader:
    """Builds the tree from the parser's events, and stops it at whatever is not wanted."""

    def __init__(self, max_elements: int) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._left = max_elements

    def doctype(self, *_: object) -> None:
        raise _malformed("a document type is not accepted")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._left -= 1
        if len(self._open) >= MAX_DEPTH or self._left < 0:
            raise _malformed("it has too many elements or too deep ones")
        element = Element(_qualified(name), {_qualified(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _: str) -> None:
        self._open.pop()

    def characters(self, text: str) -> None:
        self._open[-1].pieces.append(text)


def parse(body: bytes, max_elements: int = MAX_ELEMENTS) -> Element:
    """The root element of a document; a BusError of kind ARGUMENT when it is not one we accept."""
    reader = _Reader(max_elements)
    # The encoding is ours, not the document's: nobody else's codecs are reached through a declaration.
    parser = expat.ParserCreate("utf-8", "}")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    try:
        parser.Parse(body, True)
    except expat.ExpatError as problem:
        raise _malformed(f"{expat.ErrorString(problem.code)} in line {problem.lineno}") from None
    if reader.root is None:
        raise _malformed("it has no element")
    return reader.root


def escaped(text: str) -> str:
    """Text as it stands in an element or a double-quoted attribute; what XML cannot carry becomes U+FFFD."""
    return escape(_ILLEGAL.sub("\ufffd", text), {'"': "&quot;", "\r": "&#13;"})


def tag(name: str, text: str) -> str:
    """An element with text in it."""
    return f"<{name}>{escaped(text)}</{name}>"


def _qualified(name: str) -> str:
    return "{" + name if "}" in name else name


def _malformed(why: str) -> BusError:
    return BusError(Fault.ARGUMENT, f"The body is not an acceptable XML document: {why}.")
