"""Which namespace an HTTP request is about: its Host header tells, or else the key that signed its token.

Whether the token is enough for what is asked is the door's business.
"""

from __future__ import annotations

from aiohttp import web

from twinbus.entities.hosting import Hosting
from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError
from twinbus.wire import access


def namespace_of(request: web.Request, hosting: Hosting, clock: Clock) -> Namespace:
    """The namespace that is meant; nobody's, which refuses everybody, if that cannot be told."""
    named = hosting.by_host(request.host)
    if named is not None:
        return named
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    audience = f"{request.scheme}://{request.host}{request.rel_url.raw_path}"
    try:
        found, _ = access.where(
            hosting.namespaces, lambda rules_for: access.by_token(token, audience, rules_for, clock.now_ms())
        )
    except BusError:
        return hosting.nobody
    return found
