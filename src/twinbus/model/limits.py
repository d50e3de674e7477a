"""The numbers that bound everything: sizes, counts and durations, each with its unit in its name.

Values are those of a Standard namespace where the service documents one; who enforces a limit imports it from here.
"""

from __future__ import annotations

UNLIMITED_MS = 922_337_203_685_477  # .NET's TimeSpan.MaxValue in whole milliseconds: "never".

CONNECTIONS_MAX = 5_000
MESSAGE_BYTES_MAX = 262_144
# The Python client fills a batch up to the limit without counting its envelope: three ids of the first message.
BATCH_BYTES_MAX = MESSAGE_BYTES_MAX + 2_048
# What a diverted message carries beyond what it was: a backlog queue takes so much more, or a message that fits its
# destination would not fit the backlog.
BACKLOG_ROOM_BYTES = 4_096
STAMP_BYTES_MAX = 256  # What the broker itself says of a message that leaves, beside its record.
MESSAGE_ID_CHARS_MAX = 128
ENTITY_NAME_CHARS_MAX = 260
ENTITIES_MAX = 10_000
PARTITIONED_ENTITIES_MAX = 100
USER_METADATA_CHARS_MAX = 1024
AUTHORIZATION_RULES_MAX = 12

LOCK_DURATION_MS_MIN = 5_000
LOCK_DURATION_MS_MAX = 300_000
LOCK_DURATION_MS_DEFAULT = 30_000
DUPLICATE_WINDOW_MS_MIN = 20_000
DUPLICATE_WINDOW_MS_MAX = 7 * 24 * 3_600_000
DUPLICATE_WINDOW_MS_DEFAULT = 600_000
TTL_MS_MIN = 1_000
AUTO_DELETE_MS_MIN = 300_000
DELIVERY_COUNT_MAX = 2_147_483_647
ENTITY_SIZE_MB_CHOICES = (1024, 2048, 3072, 4096, 5120)

SESSION_STATE_BYTES_MAX = 262_144
PEEK_COUNT_MAX = 250
DELETE_COUNT_MAX = 4_000
SESSION_WAIT_MS_DEFAULT = 65_000
