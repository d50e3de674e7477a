"""The process: settings, start and stop, and the wiring of gateway, admin, entities and stores.

Everything with a thread, a socket or a real clock that is not a door of its own lives here.
"""
