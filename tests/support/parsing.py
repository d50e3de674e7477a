"""Python 3.11 before 3.11.8 cannot parse twice at once, and hypothesis parses the source of each test.

Something thrown away while `ast.parse` builds its tree may log an error, whose traceback is parsed for its markers:
then the first parse fails with "AST constructor recursion depth mismatch" (gh-106905).
"""

from __future__ import annotations

import ast
import functools
import gc
import sys
from typing import Any


def keep_whole() -> None:
    """Nothing is thrown away while source is parsed."""
    if sys.version_info >= (3, 11, 8):
        return
    parse = ast.parse

    @functools.wraps(parse)
    def undisturbed(*arguments: Any, **options: Any) -> Any:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return parse(*arguments, **options)
        finally:
            if was_enabled:
                gc.enable()

    ast.parse = undisturbed
