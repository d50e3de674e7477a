"""What was worked on, so that a second copy is not.

Receiving and settling is left to `replication`.
"""
