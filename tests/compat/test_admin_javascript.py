"""The official JavaScript administration client, unmodified, over HTTPS: runs `js/admin.test.mjs` with Node."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import optional

pytest_plugins = ["compat.conftest_admin"]
pytestmark = pytest.mark.feature("administration-javascript")

TESTS = Path(__file__).parent / "js" / "admin.test.mjs"


def test_every_javascript_test_passes(admin_endpoint: Any) -> None:
    optional.needs("node")
    environment = {
        **os.environ,
        "TWINBUS_CONNECTION_STRING": admin_endpoint.connection_string(),
        "TWINBUS_NAMESPACE": admin_endpoint.namespace,
        "NODE_EXTRA_CA_CERTS": str(admin_endpoint.ca_file),
    }
    result = subprocess.run(
        ["node", "--test", "--test-reporter=tap", TESTS.name],
        cwd=TESTS.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    # A file that runs no test passes as well, so what ran is counted.
    passed = re.search(r"^# pass (\d+)$", result.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) == len(re.findall(r"^test\(", TESTS.read_text(), re.MULTILINE))
