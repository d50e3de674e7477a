"""What a configuration file may say: every table with its keys, for our TOML and for the official emulator's JSON.

One set of tables for the reader, the JSON schema and the documentation. What a value means to a queue is `declared`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from twinbus.model import limits
from twinbus.model.entity import EntityStatus


class Kind(Enum):
    """What a value is."""

    TEXT = "a text"
    NUMBER = "a whole number"
    FLAG = "true or false"
    DURATION = "an ISO 8601 duration, such as 'PT30S'"
    TEXTS = "a list of texts"
    TABLE = "a table"
    TABLES = "a list of tables"
    ANY = "anything"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    kind: Kind
    meaning: str
    attribute: str = ""  # What it is called in the description that is made of the table.
    table: Table | None = None  # Of a TABLE or of each of the TABLES.
    choices: tuple[str, ...] | tuple[int, ...] = ()
    required: bool = False
    least: int | None = None
    most: int | None = None
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What one table may hold."""

    noun: str  # What problems call it, with its name behind.
    keys: Mapping[str, Key] = field(default_factory=dict)
    name_key: str = "Name"
    key_noun: str = "property"
    is_open: bool = False  # Keys that are not listed here are the user's own.


def _text(meaning: str, attribute: str = "", **more: object) -> Key:
    return Key(Kind.TEXT, meaning, attribute, **more)  # type: ignore[arg-type]


def _name(meaning: str) -> Key:
    return Key(Kind.TEXT, meaning, "name", required=True)


def _flag(meaning: str, attribute: str) -> Key:
    return Key(Kind.FLAG, meaning, attribute)


def _duration(meaning: str, attribute: str) -> Key:
    return Key(Kind.DURATION, meaning, attribute)


# Entities, under the names that Service Bus gives their properties.

_COMMON = {
    "DefaultMessageTimeToLive": _duration("How long messages live at most; unlimited if not given.", "default_ttl_ms"),
    "AutoDeleteOnIdle": _duration("After how long without use it is deleted; 5 min or more.", "auto_delete_on_idle_ms"),
    "UserMetadata": _text("A note of up to 1,024 characters.", "user_metadata"),
    "Status": _text("What it allows.", "status", choices=tuple(status.value for status in EntityStatus)),
    "EnableBatchedOperations": _flag("Kept and shown; commits are always grouped.", "batched_operations"),
}
_STORING = {
    "RequiresDuplicateDetection": _flag(
        "Messages whose MessageId was seen within the window are dropped.", "requires_duplicate_detection"
    ),
    "DuplicateDetectionHistoryTimeWindow": _duration("20 s to 7 days; 10 min if not given.", "duplicate_window_ms"),
    "MaxSizeInMegabytes": Key(
        Kind.NUMBER, "Its size quota.", "max_size_mb", choices=tuple(limits.ENTITY_SIZE_MB_CHOICES)
    ),
    "EnablePartitioning": _flag("Spread it over the messaging stores in 16 fragments.", "partitioned"),
    "EnableExpress": _flag("Kept and shown; messages are always durable.", "express"),
}
_RECEIVING = {
    "LockDuration": _duration(
        "How long a receiver holds a message; 5 s to 5 min, 30 s if not given.", "lock_duration_ms"
    ),
    "MaxDeliveryCount": Key(
        Kind.NUMBER, "After so many deliveries a message is dead-lettered; 10 if not given.", "max_delivery_count"
    ),
    "RequiresSession": _flag("Messages belong to sessions, which are received one by one.", "requires_session"),
    "DeadLetteringOnMessageExpiration": _flag("Expired messages are dead-lettered.", "dead_letter_on_expiration"),
    "ForwardTo": _text("The queue or topic that messages are moved to; empty for none.", "forward_to"),
    "ForwardDeadLetteredMessagesTo": _text(
        "The queue or topic that dead letters are moved to; empty for none.", "forward_dead_letters_to"
    ),
}
_ON_FILTER_ERRORS = {
    "DeadLetteringOnFilterEvaluationExceptions": _flag(
        "Messages on which a filter fails are dead-lettered.", "dead_letter_on_filter_errors"
    ),
}

QUEUE_PROPERTIES = {**_COMMON, **_STORING, **_RECEIVING}
TOPIC_PROPERTIES = {
    **_COMMON,
    **_STORING,
    "SupportOrdering": _flag("Kept and shown; subscriptions always keep the order.", "support_ordering"),
}
SUBSCRIPTION_PROPERTIES = {**_COMMON, **_RECEIVING, **_ON_FILTER_ERRORS}

CORRELATION = Table(
    "correlation filter",
    {
        "CorrelationId": _text("Equal to the message's.", "correlation_id"),
        "MessageId": _text("Equal to the message's.", "message_id"),
        "To": _text("Equal to the message's.", "to"),
        "ReplyTo": _text("Equal to the message's.", "reply_to"),
        "Label": _text("Equal to the message's subject.", "subject"),
        "SessionId": _text("Equal to the message's.", "session_id"),
        "ReplyToSessionId": _text("Equal to the message's.", "reply_to_session_id"),
        "ContentType": _text("Equal to the message's.", "content_type"),
        "Properties": Key(
            Kind.TABLE, "Application properties and the values they must have.", "properties", Table("", is_open=True)
        ),
    },
)
RULE = Table(
    "rule",
    {
        "Name": _name("Its name, once in a subscription."),
        "SqlFilter": _text("A condition in the language of docs/rules.md."),
        "CorrelationFilter": Key(Kind.TABLE, "Properties and the values they must have, instead.", "", CORRELATION),
        "Action": _text("What is changed in the subscription's copy."),
    },
)
SUBSCRIPTION = Table(
    "subscription",
    {
        "Name": _name("Its name, once in a topic."),
        **SUBSCRIPTION_PROPERTIES,
        "rules": Key(Kind.TABLES, "Without any, it gets every message.", "", RULE),
    },
)
QUEUE = Table("queue", {"Name": _name("Its name, once in a namespace."), **QUEUE_PROPERTIES})
TOPIC = Table(
    "topic",
    {
        "Name": _name("Its name, once in a namespace."),
        **TOPIC_PROPERTIES,
        "subscriptions": Key(Kind.TABLES, "Its subscriptions.", "", SUBSCRIPTION),
    },
)
HYBRID_CONNECTION = Table(
    "hybrid connection",
    {
        "Name": _name("Its name, once in a namespace."),
        "RequiresClientAuthorization": _flag(
            "Whether senders need a token, as listeners always do; true if not given.", "requires_client_authorization"
        ),
        "UserMetadata": _text("A note of up to 1,024 characters.", "user_metadata"),
    },
)
POLICY = Table(
    "policy",
    {
        "Name": _name("Its name, once in a namespace."),
        "Rights": Key(
            Kind.TEXTS, "What it grants; Manage grants all.", choices=("Listen", "Send", "Manage"), required=True
        ),
        "PrimaryKey": _text("Generated once if it is not given.", is_secret=True),
        "SecondaryKey": _text("Generated once if it is not given.", is_secret=True),
    },
)

# The process and its namespaces.

STORES_MAX = 64
DATACENTER_CHARS_MAX = 100

JOURNAL = Table(
    "journal",
    {
        "export": _flag("Export the journal to Parquet files (docs/journal.md).", "export"),
        "directory": _text("Where the files go, of one namespace or of several; `journal` in the data directory."),
        "rows": Key(Kind.NUMBER, "At most so many transactions in a file; 100,000.", "rows", least=1, most=10_000_000),
        "interval": _duration("A file is written when so much time has passed; PT5M.", "interval_ms"),
        "keep_in_store": _duration("How long the store keeps what is in files; P1D.", "keep_in_store_ms"),
        "keep_in_store_megabytes": Key(
            Kind.NUMBER, "How much of that each store keeps; 256.", "keep_in_store_mb", least=1, most=1 << 30
        ),
        "keep_files": _duration("After how long files are removed; P90D.", "keep_files_ms"),
        "keep_files_megabytes": Key(
            Kind.NUMBER,
            "How large all files may be before the oldest go; 65,536.",
            "keep_files_mb",
            least=1,
            most=1 << 30,
        ),
    },
    name_key="",
    key_noun="setting",
)
_PLACE = {
    "data": _text("Where it is kept; with several namespaces, each in a directory of its name below it."),
    "stores": Key(Kind.NUMBER, "Messaging stores; 4 for a new namespace.", least=1, most=STORES_MAX),
    "store": Key(
        Kind.TEXTS, "Addresses of PostgreSQL databases (docs/scale.md); one for each messaging store.", is_secret=True
    ),
    "datacenter": _text("The datacenter that it belongs to; shown in status and metrics."),
    "journal": Key(Kind.TABLE, "Whether and how its journal becomes files.", "", JOURNAL),
}
_CONTENTS = {
    "namespace_id": _text("The id that it must have, as status shows it; anything else is not served."),
    "key": _text("Primary key of RootManageSharedAccessKey; generated at the first start.", is_secret=True),
    "queues": Key(Kind.TABLES, "Queues to create if they are missing.", "", QUEUE),
    "topics": Key(Kind.TABLES, "Topics to create if they are missing.", "", TOPIC),
    "hybrid_connections": Key(
        Kind.TABLES, "Hybrid connections (docs/relay.md) to create if they are missing.", "", HYBRID_CONNECTION
    ),
    "policies": Key(
        Kind.TABLES, "Policies besides RootManageSharedAccessKey; those of an earlier file are gone.", "", POLICY
    ),
}
NAMESPACE = Table(
    "namespace",
    {"name": Key(Kind.TEXT, "Its name, once in the file.", required=True), **_PLACE, **_CONTENTS},
    name_key="name",
    key_noun="setting",
)


def _port(meaning: str) -> Key:
    return Key(Kind.NUMBER, f"{meaning}; 0 takes a free one.", least=0, most=65535)


PROCESS = {
    "host": _text("Address to listen on; 127.0.0.1 if not given."),
    "amqp_port": _port("AMQP in plain text, 5672"),
    "amqps_port": _port("AMQP with TLS, 5671"),
    "http_port": _port("HTTP in plain text, 5300"),
    "https_port": _port("HTTP with TLS, 5301"),
    "certificate": _text("Certificate chain in PEM; opens the ports with TLS."),
    "certificate_key": _text("Its private key in PEM."),
    "allow_plain": Key(Kind.FLAG, "Serve plain text on addresses other than loopback."),
    "test_clock": Key(Kind.FLAG, "Let tests move the clock of each namespace."),
    "faults": Key(Kind.FLAG, "Let faults be caused on purpose."),
    "entity_metrics": Key(Kind.FLAG, "Tell in /metrics of every entity by name, too."),
}
# What a file of one namespace says at its top, and one of several says in each of [[namespaces]].
ONLY_ONE = ("namespace", *_CONTENTS)
FILE = Table(
    "",
    {
        **PROCESS,
        "namespace": _text("Name of the only namespace; twinbus if not given."),
        **_PLACE,
        **_CONTENTS,
        "namespaces": Key(Kind.TABLES, "Several namespaces, instead of one at the top of the file.", "", NAMESPACE),
    },
    name_key="",
    key_noun="setting",
)

# The official emulator's file nests what ours says flat.

_EXPRESSION = Table("", {"SqlExpression": _text("The text.", required=True)}, name_key="")
_EMULATED_RULE = Table(
    "rule",
    {
        "Name": _name("Its name."),
        "Properties": Key(
            Kind.TABLE,
            "Filter and action.",
            "",
            Table(
                "",
                {
                    "FilterType": _text("Which filter it has.", choices=("Sql", "Correlation")),
                    "SqlFilter": Key(Kind.TABLE, "A condition.", "", _EXPRESSION),
                    "CorrelationFilter": Key(Kind.TABLE, "Conditions.", "", CORRELATION),
                    "Action": Key(Kind.TABLE, "What is changed.", "", _EXPRESSION),
                },
                name_key="",
            ),
        ),
    },
)


def _emulated(noun: str, properties: Mapping[str, Key], **more: Key) -> Table:
    inner = Table("", properties, name_key="")
    own = {"Name": _name("Its name."), "Properties": Key(Kind.TABLE, "Its properties.", "", inner)}
    return Table(noun, {**own, **more})


_EMULATED_SUBSCRIPTION = _emulated(
    "subscription", SUBSCRIPTION_PROPERTIES, Rules=Key(Kind.TABLES, "Its rules.", "", _EMULATED_RULE)
)
_EMULATED_NAMESPACE = Table(
    "namespace",
    {
        "Name": _name("Its name."),
        "Properties": Key(Kind.TABLE, "Limits of the emulator, which are not ours.", "", Table("", is_open=True)),
        "Queues": Key(Kind.TABLES, "Its queues.", "", _emulated("queue", QUEUE_PROPERTIES)),
        "Topics": Key(
            Kind.TABLES,
            "Its topics.",
            "",
            _emulated(
                "topic",
                TOPIC_PROPERTIES,
                Subscriptions=Key(Kind.TABLES, "Its subscriptions.", "", _EMULATED_SUBSCRIPTION),
            ),
        ),
    },
)
EMULATOR_FILE = Table(
    "",
    {
        "$schema": Key(Kind.ANY, "For editors."),
        "UserConfig": Key(
            Kind.TABLE,
            "Everything.",
            "",
            Table(
                "",
                {
                    "Namespaces": Key(Kind.TABLES, "One or more namespaces.", "", _EMULATED_NAMESPACE, required=True),
                    "Logging": Key(Kind.ANY, "The emulator's logging, which is not ours."),
                },
                name_key="",
            ),
            required=True,
        ),
    },
    name_key="",
)
