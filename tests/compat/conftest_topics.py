"""Topics for one test, made over the HTTPS door of the module's broker: a plugin of the modules that are about topics.

Such a module takes its broker from `compat.conftest_admin`, because the administration client speaks nothing but HTTPS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from support.topics import Topics


@pytest.fixture(scope="module")
def admin(admin_endpoint: Any) -> Iterator[ServiceBusAdministrationClient]:
    """The official administration client."""
    text = admin_endpoint.connection_string()
    with ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=str(admin_endpoint.ca_file)
    ) as client:
        yield client


@pytest.fixture
def topics(admin: ServiceBusAdministrationClient, request: pytest.FixtureRequest) -> Topics:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())
    return Topics(admin, words[:60].strip("-"))
