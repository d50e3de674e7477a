"""Where a namespace is administered."""

from __future__ import annotations

import pytest

from twinbus.client import ConnectionString
from twinbus.client.doors import http_address

KEY = ";SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0"
LOCAL = f"Endpoint=sb://localhost{KEY};UseDevelopmentEmulator=true"
AZURE = f"Endpoint=sb://contoso.servicebus.windows.net/{KEY}"
OWN = f"Endpoint=sb://bus.example:5681{KEY}"


@pytest.mark.parametrize(
    ("text", "port", "address"),
    [
        (LOCAL, None, "http://localhost:5300"),
        (LOCAL, 8080, "http://localhost:8080"),
        (LOCAL.replace("localhost", "[::1]:5672"), None, "http://[::1]:5300"),
        (AZURE, None, "https://contoso.servicebus.windows.net"),
        (AZURE, 5301, "https://contoso.servicebus.windows.net:5301"),
        (OWN, 5301, "https://bus.example:5301"),
    ],
)
def test_the_address_follows_from_what_is_known(text: str, port: int | None, address: str) -> None:
    assert http_address(ConnectionString.parse(text), port) == address
