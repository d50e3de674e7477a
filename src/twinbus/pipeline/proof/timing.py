"""How long messages took, and what happened when: percentiles, and the counts that plots are drawn from, in SQL.

They stand on the views of `custody`; the text is Spark's SQL and DuckDB's alike. What is late is `judgement`'s
business, and drawing is `plots`'.
"""

from __future__ import annotations

from twinbus.pipeline.proof.custody import CREATED, ENDED, code

_WORKED = f"how_ended IN {code(ENDED, 'completed', 'received_deleted')}"

_DELAY = "worked_us - coalesce(activated_us, accepted_us)"
# A percentile between two messages is between their delays. Delays are counted first: there are fewer of them than
# messages, and to sort all of those, or to hold them at once, is what a percentile costs otherwise.
_PLACE = "{share}e0 * ({messages} - 1)"
_AT = "min(CASE WHEN upto > {whole}({place}) THEN delay_us END)"


def _percentile(share: float) -> str:
    place, last = (_PLACE.format(share=share, messages=count) for count in ("messages", "max(messages)"))
    lower, upper = (_AT.format(whole=whole, place=place) for whole in ("floor", "ceil"))
    return f"{lower} + ({upper} - {lower}) * ({last} - floor({last}))"


_PERCENTILES = ", ".join(f"{_percentile(share)} AS p{name}" for share, name in ((0.5, 50), (0.95, 95), (0.99, 99)))
DELAYS = f"""
SELECT what, CAST(max(messages) AS BIGINT) AS messages, {_PERCENTILES}, max(delay_us) AS most FROM (
    SELECT what, delay_us, sum(alike) OVER (PARTITION BY what ORDER BY delay_us) AS upto,
        sum(alike) OVER (PARTITION BY what) AS messages
    FROM (
        SELECT what, delay_us, count(*) AS alike FROM (
            SELECT 'end to end' AS what, {_DELAY} AS delay_us, accepted_us AS at_us FROM messages
            UNION ALL
            SELECT 'end to end, diverted', {_DELAY}, accepted_us FROM messages WHERE diverted_us IS NOT NULL
            UNION ALL
            SELECT 'in the backlog', home_us - diverted_us, accepted_us FROM messages
            WHERE diverted_us IS NOT NULL AND home_us >= diverted_us
        ) AS traces
        WHERE delay_us IS NOT NULL AND {{in_window}}
        GROUP BY what, delay_us
    ) AS counted
) AS ranked
GROUP BY what
"""
# From the first message to the last that was sent or worked on; what a browse or a note did later is no part of it.
SPAN = f"""
SELECT min(created_us) AS first_us,
    max(CASE WHEN {_WORKED} AND ended_dead = 0 THEN ended_us ELSE created_us END) AS last_us
FROM copies
"""
# Both pictures: how long messages took, in quarters of a power of two of a millisecond, and what happened when.
PICTURES = f"""
SELECT CASE WHEN diverted_us IS NULL THEN 'direct' ELSE 'diverted' END AS what, 'latency' AS picture,
    CAST(floor(ln(greatest({_DELAY}, 1000) / 1000.0) / ln(2.0) * 4) AS INT) AS bin, count(*) AS messages
FROM messages WHERE {_DELAY} IS NOT NULL GROUP BY 1, 2, 3
UNION ALL
SELECT what, 'timeline', CAST(floor((at_us - {{first_us}}) / {{width_us}}) AS INT), count(*) FROM (
    SELECT CASE WHEN in_backlog = 1 THEN 'diverted' ELSE 'accepted' END AS what, created_us AS at_us FROM copies
    WHERE how_created IN {code(CREATED, "accepted", "scheduled")} OR published > 0
    UNION ALL
    SELECT CASE WHEN in_backlog = 1 THEN 'brought home' ELSE 'worked on' END, ended_us FROM copies
    WHERE {_WORKED} AND ended_dead = 0
) AS traces
GROUP BY 1, 2, 3
"""
