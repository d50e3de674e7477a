"""Which messages are copies of one another: those with one MessageId, or those to which senders gave one tag.

The journal knows no tags, so they come from send logs (`sent.tag`, null where copies are told by MessageId); an id
without one is its own tag. What follows for lost and doubled messages is `judgement`'s business.
"""

from __future__ import annotations

NAMED_BY_ID = "SELECT DISTINCT message_id, message_id AS tag, '' AS place FROM suspects WHERE message_id <> ''"
KIN_BY_ID = "SELECT message_id AS suspect, message_id FROM named"

# What each suspect is called, and where it was sent to: a tag is one message's within one entity, an id everywhere.
NAMED_BY_TAG = """
SELECT suspects.message_id AS message_id, coalesce(max(sent.tag), suspects.message_id) AS tag,
    coalesce(max(CASE WHEN sent.tag IS NOT NULL THEN lower(sent.entity) END), '') AS place
FROM (SELECT DISTINCT message_id FROM suspects WHERE message_id <> '') AS suspects
LEFT JOIN sent ON sent.message_id = suspects.message_id
GROUP BY suspects.message_id
"""
KIN_BY_TAG = """
SELECT message_id AS suspect, message_id FROM named
UNION
SELECT named.message_id, sent.message_id FROM named
JOIN sent ON sent.tag = named.tag AND lower(sent.entity) = named.place
"""

# Tags that a ledger knows as done, for the entity itself or for a subscription of the topic.
KNOWN = """
SELECT named.message_id AS suspect FROM ledger JOIN named ON named.tag = ledger.tag
WHERE state <> 'claimed' AND (place = '' OR lower(scope) = place
    OR substr(lower(scope), 1, length(place) + 15) = concat(place, '/subscriptions/'))
"""

# How many messages no log gives a tag.
NAMELESS = """
SELECT count(*) AS nameless FROM messages
WHERE NOT EXISTS (SELECT 1 FROM sent WHERE sent.message_id = messages.message_id AND sent.tag IS NOT NULL)
"""

# Copies that were worked on, with what they are known by: the first if that is the MessageId. Then there are few, as
# it is known already which messages have more than one.
SEVERAL = "SELECT message_id FROM messages WHERE worked > 1"
WORKED_BY_ID = """
SELECT copies.message_id AS message_id, copies.message_id AS tag, entity, copies.ended_us AS ended_us
FROM copies JOIN several ON several.message_id = copies.message_id
WHERE {worked}
"""
WORKED_BY_TAG = """
SELECT copies.message_id AS message_id, coalesce(tags.tag, copies.message_id) AS tag, entity, ended_us
FROM copies
LEFT JOIN (SELECT message_id, max(tag) AS tag FROM sent WHERE tag IS NOT NULL GROUP BY message_id) AS tags
    ON tags.message_id = copies.message_id
WHERE {worked}
"""
