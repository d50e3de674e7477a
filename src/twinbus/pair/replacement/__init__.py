"""A primary that is lost for good, and the namespace that takes its place.

How a backlog is drained is left to `syphon`.
"""
