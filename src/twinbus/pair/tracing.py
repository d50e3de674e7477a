"""Spans of OpenTelemetry around what a pair does, for applications that use it; for all others nothing happens.

Nothing is imported for it: where the application has not set OpenTelemetry up, nobody could see a span. Attributes
have the names of the semantic conventions for messaging, written out here. What a message carries of its sender's trace
is never changed: those who move it later link to that, since it is not a part of it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from twinbus.client import messages
from twinbus.client.errors import ClientError

NAME = "twinbus.pair"
SYSTEM = "servicebus"
LINKS_MAX = 128  # As many as a span has room for by default.
# How the SDK, and W3C's recommendation on trace context, write down who sent a message.
_CONTEXT_PROPERTIES = ("traceparent", "Diagnostic-Id")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SUBSCRIPTION = re.compile(r"(.+)/subscriptions/(.+)", re.IGNORECASE)

M = TypeVar("M", bound=Callable[..., Any])


def is_on() -> bool:
    """Whether the application uses OpenTelemetry: it has set a provider of tracers."""
    return "opentelemetry.trace" in sys.modules and _api() is not None


def _api() -> Any:
    """OpenTelemetry's module of traces, if anybody could see a span; many libraries only import it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace


class Span:
    """What can be said of a span while it lasts; without OpenTelemetry nobody hears it."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def say(self, **attributes: str | bool | int) -> None:
        """Set attributes of our own."""
        if self._span is not None:
            for name, value in attributes.items():
                self._span.set_attribute(f"twinbus.{name}", value)

    def fail(self, error: BaseException) -> None:
        """It did not succeed, although no exception leaves it."""
        if self._span is not None:
            trace = sys.modules["opentelemetry.trace"]
            self._span.set_attribute("error.type", _type_of(error))
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))


_SILENT = Span()


@contextmanager
def span(
    operation: str,
    path: str,
    *,
    kind: str = "INTERNAL",
    type_: str = "send",
    name: str = "",
    count: int | None = None,
    message_id: str | None = None,
    at: tuple[str, int] | None = None,
    payloads: Iterable[bytes] = (),
    root: bool = False,
) -> Iterator[Span]:
    """A span around an operation on an entity, `at` a host and port; linked to the senders of encoded messages.

    What wraps a call of the SDK is INTERNAL, since the SDK may make a span of its own inside; what our client sends or
    settles is CLIENT. A `root` belongs to no trace that happens to be under way.
    """
    trace = _api()
    if trace is None:
        yield _SILENT
        return
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": type_,
        **_destination(path),
    }
    if count is not None:
        attributes["messaging.batch.message_count"] = count
    if message_id:
        attributes["messaging.message.id"] = message_id
    if at is not None:
        attributes |= {"server.address": at[0], "server.port": at[1]}
    tracer = trace.get_tracer(NAME)
    with tracer.start_as_current_span(
        f"{name or operation} {path}",
        context=sys.modules["opentelemetry.context"].Context() if root else None,
        kind=trace.SpanKind[kind],
        attributes=attributes,
        links=_links(trace, payloads),
    ) as made:
        try:
            yield Span(made)
        except BaseException as error:
            made.set_attribute("error.type", _type_of(error))
            raise


def current() -> Span:
    """The span that was begun around the present call, by the same thread or task."""
    trace = _api()
    return _SILENT if trace is None else Span(trace.get_current_span())


def settles(operation: str) -> Callable[[M], M]:
    """For methods of a receiver that settle a message: a span around each call."""

    def decorate(method: M) -> M:
        @functools.wraps(method)
        async def settle(self: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_on():
                return await method(self, message, *args, **kwargs)
            with span(operation, self.scope, type_="settle", message_id=message.message_id) as made:
                made.say(ledger=True)
                return await method(self, message, *args, **kwargs)

        return cast(M, settle)

    return decorate


def _destination(path: str) -> dict[str, str | int]:
    topic = _SUBSCRIPTION.fullmatch(path)
    if topic is None:
        return {"messaging.destination.name": path}
    return {"messaging.destination.name": topic[1], "messaging.destination.subscription.name": topic[2]}


def _type_of(error: BaseException) -> str:
    return error.condition if isinstance(error, ClientError) else type(error).__qualname__


def _links(trace: Any, payloads: Iterable[bytes]) -> Sequence[Any]:
    """Links to those who sent the messages, as far as they have said who they are."""
    found: list[Any] = []
    for payload in payloads:
        parent = _traceparent(payload)
        if parent is not None:
            trace_id, span_id, flags = (int(part, 16) for part in parent.groups())
            context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
            if context.is_valid and len(found) < LINKS_MAX:
                found.append(trace.Link(context))
    return found


def _traceparent(payload: bytes) -> re.Match[str] | None:
    try:
        properties = messages.read(payload).properties
    except ClientError:
        return None  # What cannot be read has no sender that could be found.
    for name in _CONTEXT_PROPERTIES:
        value = properties.get(name)
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        if isinstance(text, str) and (found := _TRACEPARENT.fullmatch(text)) is not None:
            return found
    return None
