"""The HTTP door: the Atom API for entities, the JSON API, messages over REST, health and metrics.

What an entity is, whether a change is allowed and what happens to a message is decided in `model` and `entities`.
"""
