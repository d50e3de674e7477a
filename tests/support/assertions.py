"""Twinbus is imported in tests as everywhere else.

It has a plugin for pytest, and pytest therefore rewrites the assertions of all its modules when they are imported. That
takes time in every process, shows nothing, and on Python 3.11 fails now and then where two threads import at once.
"""

from __future__ import annotations

import sys

for finder in sys.meta_path:
    getattr(finder, "_must_rewrite", set()).discard("twinbus")
