"""What the SDK raises, as the one error of the port: which condition, does waiting help, did it certainly not happen.

The facts about each condition are in `client.errors`; here the SDK's own words for what happened on this side of the
connection are kept apart from what a peer said.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

from azure.servicebus._pyamqp.error import AMQPDecodeError, AMQPException, ErrorCondition, TokenAuthFailure

from twinbus.client.authorisation import UNAUTHORIZED
from twinbus.client.errors import NO_TLS, NOT_TAKEN, TIMED_OUT, UNREACHABLE, ClientError
from twinbus.client.hearing import What
from twinbus.client.requests import refusal

# These come from no peer: the SDK gives them to what it notices itself.
_LOCAL = frozenset(
    {ErrorCondition.SocketError, ErrorCondition.ClientError, ErrorCondition.UnknownError, ErrorCondition.VendorError}
)
UNAUTHORIZED_ACCESS, FRAMING_ERROR = "amqp:unauthorized-access", "amqp:connection:framing-error"
# Mistakes in a program, such as ours about a release of the SDK, say nothing about a namespace.
MISTAKES = (AttributeError, NameError, TypeError)


def as_client_error(problem: BaseException, local: str) -> ClientError:
    """`local` is the condition for what happened on this side."""
    if isinstance(problem, ClientError):
        return problem
    if isinstance(problem, TokenAuthFailure):
        said = text(problem.status_description) or str(problem)
        return refusal(problem.status_code, said).but(definite=True)
    for cause in _causes(problem):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ClientError(UNREACHABLE, f"not trusted: {cause}", transient=False)
        if isinstance(cause, ssl.SSLError):
            return ClientError(NO_TLS, f"no TLS: {cause}")
    if isinstance(problem, AMQPException):
        if problem.condition not in _LOCAL:
            return ClientError(text(problem.condition), text(problem.description) or str(problem))
        return ClientError(local, text(problem.description) or str(problem))
    if isinstance(problem, TimeoutError):
        return ClientError(TIMED_OUT, str(problem) or "no answer in time")
    return ClientError(local, f"{type(problem).__name__}: {problem}")


def heard_in(problem: BaseException) -> What | None:
    """What a failure says of the client itself; None if nothing."""
    for cause in _causes(problem):
        if isinstance(cause, TokenAuthFailure):
            return What.TOKEN_REFUSED if cause.status_code == UNAUTHORIZED else None
        if isinstance(cause, AMQPDecodeError):
            return What.PROTOCOL_BROKEN
        if isinstance(cause, AMQPException):
            condition = text(cause.condition)
            return {UNAUTHORIZED_ACCESS: What.RIGHT_REFUSED, FRAMING_ERROR: What.PROTOCOL_BROKEN}.get(condition)
    return None


def refused(state: Any, expected: str) -> ClientError | None:
    """What a delivery state means, as the SDK decodes it; None if it is the one that was expected."""
    name, fields = next(iter(state.items())) if isinstance(state, dict) and state else ("nothing", None)
    error = fields[0] if name == "rejected" and fields else None
    if error:
        condition, *rest = error
        return ClientError(text(condition), text(rest[0] if rest else None) or "the peer gave no reason")
    return None if name == expected else ClientError(NOT_TAKEN, f"the peer's outcome is {name}")


def text(value: Any) -> str:
    """Symbols and strings, which the SDK decodes to bytes; a member of an enumeration by its value."""
    value = getattr(value, "value", value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _causes(problem: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = problem
    while found is not None:
        yield found
        found = found.__cause__
