"""The numbers that bound rules: their text, their tree, and the work of one evaluation.

The first group is what the service documents; the second is ours, so that no rule can hold up the event loop.
"""

from __future__ import annotations

EXPRESSION_CHARS_MAX = 1024
STATEMENTS_MAX = 32
RULE_NAME_CHARS_MAX = 50
KEY_CHARS_MAX = 128  # MessageId, SessionId, ReplyToSessionId, PartitionKey.
PROPERTY_BYTES_MAX = 32 * 1024

NESTING_MAX = 32  # Parentheses, NOT and signs inside one another while parsing.
DEPTH_MAX = 64  # Levels of the finished tree, and so the deepest call while evaluating.
NODES_MAX = 512
PARAMETERS_MAX = 100
PARAMETER_CHARS_MAX = 1024  # The text of a parameter or of a correlation filter's value.
PARAMETER_NAME_CHARS_MAX = 128
PATTERN_CHARS_MAX = 1024  # A LIKE pattern that a property supplies.
TEXT_CHARS_MAX = 64 * 1024  # A text that + puts together: no message can carry more in its properties.
STEPS_MAX = 20_000  # Comparisons that LIKE makes in one evaluation; a few milliseconds.
