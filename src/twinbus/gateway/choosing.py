"""Which namespace a client means: its host name tells, or else the key that it holds.

What the host names are is `entities.hosting`'s business, whether a key or token is good `wire.access`'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twinbus.entities.hosting import Hosting
from twinbus.entities.namespace import Namespace
from twinbus.gateway.context import Context
from twinbus.wire import access
from twinbus.wire.access import Grant


class Choice:
    """The contexts of all namespaces; `entrance` is for clients that have not told yet, and nothing is in it."""

    def __init__(self, hosting: Hosting, new_context: Callable[[Namespace], Context]) -> None:
        self._hosting = hosting
        self.entrance = new_context(hosting.nobody)
        self.contexts = {namespace.name: new_context(namespace) for namespace in hosting.namespaces}
        self.only = None if hosting.only is None else self.contexts[hosting.only.name]

    def by_host(self, host: str | None) -> Context | None:
        """The context that a host name means, if it tells."""
        namespace = self._hosting.by_host(host)
        return None if namespace is None else self.contexts[namespace.name]

    def by_token(self, known: Context, token: str, audience: str, now_ms: int) -> tuple[Context, Grant]:
        """What a token grants, in the namespace that is known or else in the one whose key signed it."""
        namespace, grant = access.where(
            self._candidates(known), lambda rules_for: access.by_token(token, audience, rules_for, now_ms)
        )
        return self.contexts[namespace.name], grant

    def by_key(self, known: Context, policy: str, key: str) -> list[tuple[Context, Grant]]:
        """What a policy's key grants, in the namespace that is known or else in each whose key it is."""
        found = access.everywhere(self._candidates(known), lambda rules_for: access.by_key(policy, key, rules_for))
        return [(self.contexts[namespace.name], grant) for namespace, grant in found]

    def _candidates(self, known: Context) -> Sequence[Namespace]:
        return self._hosting.namespaces if known is self.entrance else (known.namespace,)
