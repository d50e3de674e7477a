"""A Service Bus for the tests of an application: namespaces that start in half a second and can fail on purpose.

`namespace()` and `pair()` are context managers; `plugin` has the same as fixtures for pytest. Each namespace is a
process of its own, so that killing one is what it is in production.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.testing.local import BrokerError, LocalNamespace, Pair, Store, namespace, pair

__all__ = ["BrokerError", "LocalNamespace", "Pair", "Store", "namespace", "pair"]


def __getattr__(name: str) -> Any:
    """Import the kit when it is used: every run of pytest imports this package for the sake of its plug-in."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from twinbus.testing import local

    return getattr(local, name)
