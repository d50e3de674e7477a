"""Messages and the journal kept as Parquet files by day.

Files appear whole or not at all; small ones are put together by `compaction`.
"""
