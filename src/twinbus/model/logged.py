"""What is logged, by name: every event has one that stays, a sentence for people, and fields for machines.

Names are told once, here, and docs/logs.md has them all; a test holds that nothing else is logged. How lines look is
decided by whoever sets up logging (`cli.log_lines`, or an application): a record's attribute `twinbus` has the fields.
"""

from __future__ import annotations

import logging
from typing import Any

EVENTS: dict[str, str] = {
    # The process and its doors.
    "broker.started": "Clients can connect.",
    "broker.stopping": "It was told to stop: ports are closed, clients are let go.",
    "broker.stopped": "Commits are finished, files are released.",
    "auth.refused": "A key or token was not good, or does not grant what was asked.",
    "request.refused": "A request was refused, for the reason that its sender was told.",
    "request.failed": "A request met a defect; the traceback follows.",
    "settlement.failed": "A decision about a message could not be carried out.",
    "connection.refused": "A WebSocket for AMQP was refused.",
    "connection.given_up": "A connection was cut off because of what the client sent, or did not read.",
    "connection.failed": "A connection met a defect; the traceback follows.",
    "job.failed": "A job on messages (redrive, purge) ended early.",
    "fault.changed": "A fault was caused on purpose, or lifted.",
    "failpoint.armed": "The broker was told by its environment to fail on purpose at a named place.",
    "drill.started": "A drill runs.",
    "drill.ended": "A drill has ended.",
    "examination.begun": "Somebody has a running namespace verified, or backed up.",
    "examination.ended": "A verification has found nothing, or a backup is done.",
    "examination.findings": "A verification has found something that is not whole.",
    "examination.failed": "A verification or a backup could not be made.",
    # Messaging stores and the catalog.
    "store.up": "A messaging store takes commands again.",
    "store.down": "An operator took a messaging store down.",
    "store.failed": "A messaging store failed, or could not be opened; its entities are not available.",
    "store.hanging": "A commit takes too long; whoever waited was answered.",
    "store.answered": "The disk of a hanging store has answered; it is opened anew.",
    "store.left": "At the end the disk did not answer; the next start recovers.",
    "store.full": "The disk is full: messages are handed out and none are taken.",
    "store.room": "There is room again.",
    "store.database.lost": "The connection to a PostgreSQL store broke off.",
    "store.database.back": "A PostgreSQL store is connected again.",
    "store.database.debug": "Why a PostgreSQL store could not be connected yet.",
    "store.locks.left": "Locks of a gateway that ends could not be given back; they expire by themselves.",
    "commit.replayed": "A group of commands failed, and each of them is tried alone.",
    "commit.failed": "A commit met a defect; whoever waited was answered.",
    "commit.unheard": "A commit has ended after everybody left.",
    "command.failed": "One command met a defect in its store.",
    "command.unanswered": "The answer to a command met a defect.",
    "checkpoint.failed": "The write-ahead log could not be moved into the database; it is tried again.",
    "message.damaged": "A message does not match its checksum and was set aside.",
    "catalog.row.unreadable": "A row of the catalog cannot be read; it stays, and its entity is not available.",
    "catalog.down": "Entities cannot be changed: the catalog's database does not answer.",
    "catalog.lost": "Nothing can be changed in the catalog: its files were taken away while it was served.",
    "catalog.up": "The catalog's database answers again.",
    "policy.changed": "A policy of the namespace was made, changed or removed: by the settings, or through the API.",
    "entity.remade": "A store was replaced or accepted by an operator; an entity that it lacks was made anew, empty.",
    "entity.set_aside": "A store holds an entity that the catalog does not know; it is kept and not served.",
    "entity.adopted": "What was set aside is an entity of the namespace again, as an operator wanted.",
    "entity.given_up": "What was set aside was dropped by an operator.",
    "namespace.undeclared": "A policy or an entity that the settings declare cannot be made yet; it is tried again.",
    "namespace.declared": "What the settings declare is there at last.",
    "entity.idle.failed": "Idle entities could not be deleted.",
    "forwarding.waiting": "A message cannot be forwarded at present.",
    # Several gateways.
    "gateway.silent": "Another gateway does not answer; it finds changes by itself.",
    "gateway.back": "This gateway was given up by the others, and is back.",
    "gateway.beat.failed": "A sign of life failed.",
    "gateway.unsaid": "The others could not be told that this gateway ends.",
    "notifications.lost": "Notifications of a database are not heard; polling goes on.",
    "notifications.heard": "Notifications of a database are heard again.",
    # The journal's files.
    "journal.gap": "Rows of the journal were removed before they were exported.",
    "journal.unreadable": "A store's journal cannot be read.",
    "journal.unfinished": "The journal was not exported to its end; the next start goes on.",
    "journal.export.failed": "A store's journal cannot be exported now.",
    "journal.trim.failed": "Old rows of the journal could not be removed.",
    "journal.files.removed": "Old files of the journal were removed.",
    # The relay.
    "relay.refused": "A request at the relay was refused.",
    "relay.listener.given_up": "A listener's channel was cut off because of what it sent.",
    "relay.token.refused": "A listener's new token was not good.",
    "relay.rendezvous.given_up": "A listener's rendezvous was cut off because of what it sent.",
    "relay.channel.ended": "The relay ended a listener's control channel.",
    "relay.one_datacenter": "Both relays of a service are in one datacenter.",
    "relay.unreachable": "A relay cannot be listened at.",
    "relay.not_understood": "A relay said what is not understood.",
    "relay.handler.failed": "An application's handler failed.",
    "relay.response.failed": "A response could not be given.",
    "relay.socket.refused": "A socket could not be had.",
    "relay.socket.broken": "A socket broke off.",
    # A paired client.
    "pair.incomplete": "Something of the pair could not be learnt or made yet.",
    "pair.forgotten": "What was remembered of a pair cannot be read.",
    "pair.not_remembered": "Nothing can be remembered of a pair.",
    "pair.suspected": "Sends to an entity fail; they still go to the primary.",
    "pair.failover.engaged": "An entity failed over: sends go to the backlog.",
    "pair.failover.ended": "An entity is healthy: sends go to the primary.",
    "pair.refused": "The primary refuses messages for an entity in a way that will not pass.",
    "pair.client.faulted": "One of a pair's two clients is not used any more, and the other neither.",
    "pair.listener.failed": "An application's listener failed.",
    "backlog.differs": "A backlog queue is not as it should be.",
    "backlog.count.kept": "There are more or fewer ordered backlog queues than were asked for.",
    "sdk.link.failed": "A link of the SDK ended because of a defect.",
    "syphon.paused": "The syphon waits: a namespace does not answer.",
    "syphon.blocked": "A destination takes nothing at present.",
    "outbox.waiting": "The outbox cannot be read at present.",
    "outbox.failed": "Sending from the outbox met a defect.",
    "outbox.entity.waiting": "An entity takes nothing from the outbox at present.",
    "outbox.note.failed": "What was sent cannot be noted; it is tried again.",
    "outbox.set_aside": "A message in the outbox will be taken by nobody and was set aside.",
    "presence.failed": "A namespace was not told that this client is there.",
    "partitions.unknown": "Whether an entity is partitioned is not known.",
    "ledger.unavailable": "The ledger cannot be asked; copies wait.",
    "lock.lost": "The lock of a held copy is lost; it comes again.",
    "receive.failed": "Receiving from a namespace failed; it is tried again.",
    "receive.unsettled": "A copy could not be settled, and comes again.",
    "replication.copy.failed": "One namespace did not take its copy.",
    "replication.active.changed": "Another namespace is the active one.",
    "token.renewal.failed": "A token could not be renewed; it is tried again.",
}


class EventLog:
    """A logger of named events. The text is a format of the fields, made only if somebody listens."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, text: str, /, **fields: Any) -> None:
        """For whoever looks for a cause."""
        self.log(logging.DEBUG, event, text, **fields)

    def info(self, event: str, text: str, /, **fields: Any) -> None:
        """It happened, and nobody need act."""
        self.log(logging.INFO, event, text, **fields)

    def warning(self, event: str, text: str, /, **fields: Any) -> None:
        """Somebody should know."""
        self.log(logging.WARNING, event, text, **fields)

    def error(self, event: str, text: str, /, **fields: Any) -> None:
        """Something does not work."""
        self.log(logging.ERROR, event, text, **fields)

    def critical(self, event: str, text: str, /, **fields: Any) -> None:
        """Somebody should act."""
        self.log(logging.CRITICAL, event, text, **fields)

    def exception(self, event: str, text: str, /, **fields: Any) -> None:
        """A defect, with the traceback of the exception that is being handled."""
        self.log(logging.ERROR, event, text, exc_info=True, **fields)

    def log(
        self, level: int, event: str, text: str, /, *, exc_info: bool | BaseException | None = None, **fields: Any
    ) -> None:
        """Log an event at a level; `exc_info` as for any logger."""
        if self._logger.isEnabledFor(level):
            told = {"event": event, **fields}
            message = text.format(**fields)
            self._logger.log(level, "%s", message, exc_info=exc_info, extra={"twinbus": told}, stacklevel=3)
