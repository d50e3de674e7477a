"""The database engines: connections, durability and group commit.

Knows nothing of messages; the stores use it, and so will the ledger and the outbox.
"""
