"""Which HTTP status a fault has, and the error document that the official clients read (wire contract 9.2).

One table; finding the fault is the callee's business, and writing the log the door's.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.model.errors import Fault
from twinbus.wire.markup import tag

_TEXT_CHARS_MAX = 1_000


class Answer(NamedTuple):
    """A status, and the finer code by which clients tell apart faults of the same status."""

    status: int
    subcode: int


# A missing right answers 401 like a bad token, as the service does: the JavaScript client takes a 403 for an
# exceeded quota unless its sub-code is 40301, and then for an invalid operation.
ANSWERS: dict[Fault, Answer] = {
    Fault.ARGUMENT: Answer(400, 40000),
    Fault.AUTHENTICATION_FAILED: Answer(401, 40103),
    Fault.DECODE: Answer(400, 40000),
    Fault.ENTITY_DELETED: Answer(404, 40400),
    Fault.ENTITY_DISABLED: Answer(403, 40301),
    Fault.ENTITY_EXISTS: Answer(409, 40900),
    Fault.ENTITY_NOT_FOUND: Answer(404, 40400),
    Fault.INTERNAL: Answer(500, 50000),
    Fault.LOCK_LOST: Answer(410, 41000),
    Fault.MESSAGE_NOT_FOUND: Answer(404, 40400),
    Fault.MESSAGE_TOO_LARGE: Answer(413, 41300),
    Fault.NOT_ALLOWED: Answer(403, 40301),
    Fault.NOT_IMPLEMENTED: Answer(501, 50100),
    Fault.QUOTA_EXCEEDED: Answer(403, 40300),
    Fault.SERVER_BUSY: Answer(503, 50300),
    Fault.SESSION_HELD: Answer(409, 40900),
    Fault.SESSION_LOCK_LOST: Answer(410, 41000),
    Fault.STORE_UNAVAILABLE: Answer(503, 50300),
    Fault.TIMEOUT: Answer(504, 50400),
    Fault.UNAUTHORIZED: Answer(401, 40100),
}


class HttpError(Exception):
    """A fault of HTTP itself, which no entity knows: a method, a header or a body that cannot be."""

    def __init__(self, status: int, text: str, allow: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.answer = Answer(status, status * 100)
        self.text = text
        self.allow = allow  # Of a 405: the methods that the address knows.


def error_document(answer: Answer, text: str, tracking_id: str, tracker: str, timestamp: str) -> str:
    """The body of a refusal: a code, and a sentence with what finds it again in the log."""
    detail = (
        f"SubCode={answer.subcode}. {text[:_TEXT_CHARS_MAX]} "
        f"TrackingId:{tracking_id}, SystemTracker:{tracker[:_TEXT_CHARS_MAX]}, Timestamp:{timestamp}"
    )
    return f"<Error>{tag('Code', str(answer.status))}{tag('Detail', detail)}</Error>"
