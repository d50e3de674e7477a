"""Addresses of databases show where, never with which password."""

from __future__ import annotations

import pytest

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.settings import NamespaceSettings, SettingsError

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("uri", "label"),
    [
        (f"postgresql://me:{SECRET}@db1:5432/bus", "db1:5432/bus"),
        (f"postgresql://me:{SECRET}@db1:5432,db2:5433/bus?sslmode=require", "db1:5432,db2:5433/bus"),
        ("postgres://db1/bus", "db1/bus"),
        ("postgresql:///bus?host=/run/postgresql", "/run/postgresql/bus"),
        (f"postgresql://db1/bus?password={SECRET}", "db1/bus"),
        (f"postgresql://me:a%40{SECRET}@[::1]:5432/bus", "[::1]:5432/bus"),
    ],
)
def test_the_label_tells_where_and_no_secret(uri: str, label: str) -> None:
    address = DatabaseAddress(uri)
    assert address.label == label
    assert SECRET not in repr(address) + str(address) + f"{address}"
    assert address == DatabaseAddress(uri)


@pytest.mark.parametrize(
    "uri",
    [
        f"mysql://me:{SECRET}@db/bus",
        f"postgresql://me:{SECRET}@with-at@db/bus",
        f"postgresql://me:{SECRET}/slash@db/bus",
        f"postgresql://me:{SECRET}#hash@db/bus",
        f"postgresql://me:{SECRET}%zz@db/bus",
        f"host=db password={SECRET}",
        "",
    ],
)
def test_what_is_no_address_is_refused_without_being_repeated(uri: str) -> None:
    with pytest.raises(SettingsError) as refused:
        DatabaseAddress(uri)
    assert SECRET not in str(refused.value)
    assert "postgresql://" in str(refused.value)


def test_settings_do_not_show_addresses() -> None:
    assert SECRET not in repr(NamespaceSettings(store=[f"postgresql://me:{SECRET}@db/bus"]))


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (f"postgresql://me:{SECRET}@db1:5432,db2/bus", "postgresql://me:PASSWORD@db1:5432,db2/bus"),
        (
            f"postgresql://db1/bus?password={SECRET}&sslmode=require",
            "postgresql://db1/bus?password=PASSWORD&sslmode=require",
        ),
        ("postgresql://me@db1/bus?sslmode=require", "postgresql://me@db1/bus?sslmode=require"),
        ("postgresql://[::1]:5432/bus", "postgresql://[::1]:5432/bus"),
        (
            f"postgresql://me:{SECRET}@[::1]:5432/bus?sslpassword={SECRET}",
            "postgresql://me:PASSWORD@[::1]:5432/bus?sslpassword=PASSWORD",
        ),
    ],
)
def test_an_address_to_be_shown_has_everything_but_the_password(uri: str, shown: str) -> None:
    assert DatabaseAddress(uri).without_password == shown
