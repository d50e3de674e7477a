"""Where a send goes: the health of each entity, the router that decides, the carrier that obeys.

Carrying bytes is left to `namespace`.
"""
