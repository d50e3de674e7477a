"""A durable queue on the application's side of the network, and the dispatcher that empties it.

Where a message goes from there is decided by `route`.
"""
