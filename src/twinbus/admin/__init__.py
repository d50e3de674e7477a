"""The HTTP door: the Atom API for entities, health and metrics.

What an entity is and whether a change is allowed is decided in `model` and `entities`; messages never pass
here.
"""
