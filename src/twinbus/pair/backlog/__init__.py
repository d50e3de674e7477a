"""Backlog queues of the secondary: their names, making them, sending to them.

When to divert is decided by `route`; bringing messages home is left to `syphon`.
"""
