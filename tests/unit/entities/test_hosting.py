"""Several namespaces in one process: which one a host name means, and what is not anybody's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.entities.hosting import Hosting, nobodys
from twinbus.model.errors import BusError, Fault
from twinbus.wire import view


def hosting(*names: str) -> Hosting:
    clock = SimpleNamespace(now_ms=lambda: 0)
    namespaces: list[Any] = [SimpleNamespace(name=name) for name in names]
    return Hosting(namespaces, nobodys(clock, view))


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("contoso.servicebus.windows.net", "contoso"),
        ("CONTOSO.localhost", "contoso"),
        ("contoso.localhost:5300", "contoso"),
        ("contoso:5300", "contoso"),
        ("fabrikam", "Fabrikam"),
        ("localhost", None),
        ("localhost:5300", None),
        ("127.0.0.1:5300", None),
        ("[::1]:5300", None),
        ("", None),
        (None, None),
        ("*", None),
        ("bus.contoso.example", None),
    ],
)
def test_the_first_label_of_a_host_name_is_the_namespaces_name(host: str | None, name: str | None) -> None:
    found = hosting("contoso", "Fabrikam").by_host(host)
    assert (None if found is None else found.name) == name


def test_the_only_namespace_is_meant_by_every_host_name() -> None:
    one = hosting("contoso")
    assert one.by_host("127.0.0.1") is one.by_host("fabrikam.localhost") is one.only
    assert (one.label, hosting("a", "b").label) == ("contoso", "twinbus")


async def test_nothing_can_be_made_where_nobody_is_at_home() -> None:
    nobody = hosting("a", "b").nobody
    assert (nobody.entities(), list(nobody.rules_for("q")), list(nobody.stores)) == ([], [], [])
    with pytest.raises(BusError) as refused:
        await nobody.set_rules([])
    assert refused.value.fault is Fault.UNAUTHORIZED
