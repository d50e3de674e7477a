"""A home directory for the tests, so that browsers, node and our own commands leave nothing in that of the user."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path


def use_own_home() -> None:
    """Give this process and all below it an empty one, which goes with it; a worker of xdist has that of its parent."""
    # The plots' list of fonts is the same each time, and takes seconds to make.
    os.environ.setdefault("MPLCONFIGDIR", str(Path(sys.prefix) / "matplotlib"))
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    home = tempfile.mkdtemp(prefix="twinbus-home-")
    os.environ["HOME"] = home
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    atexit.register(shutil.rmtree, home, ignore_errors=True)
