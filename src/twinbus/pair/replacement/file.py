"""The file that describes a pair, written anew with another primary; the one before it stays next to it.

Comments are only in the old one. What a description may say is in `description`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Table = dict[str, Any]


def moved(document: Mapping[str, Any], replacement: Table, replaces: str, *, swap: bool) -> Table:
    """The description after the move. Swapped, the secondary is the primary, and the replacement the secondary."""
    made = {**document, "options": {**document.get("options", {}), "replaces": replaces}}
    if not swap:
        return {**made, "primary": replacement}
    if "entities" in document:
        made["entities"] = {there: here for here, there in document["entities"].items()}
    # A name is described for a primary only, as its backlog queues are called after it; this one can be asked.
    primary = {key: value for key, value in document["secondary"].items() if key != "name"}
    return {**made, "primary": primary, "secondary": replacement}


def to_toml(document: Mapping[str, Any]) -> str:
    """A description as a file has it."""
    lines = [f"{_key(name)} = {_value(value)}" for name, value in document.items() if not isinstance(value, Mapping)]
    for name, table in document.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{_key(name)}]"]
            lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items()]
    text = "\n".join([*lines, ""]).lstrip("\n")
    if tomllib.loads(text) != document:
        raise ValueError("the description cannot be written as it was read")
    return text


def write(path: Path, text: str) -> Path:
    """Put a description in the place of another, all or nothing; where the other one is now."""
    old = _free(path)
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, made)
        shutil.copy2(path, old)
        os.replace(made, path)
    except BaseException:
        for each in (made, old):
            with suppress(OSError):
                os.unlink(each)
        raise
    return old


def _free(path: Path) -> Path:
    """A name that no earlier description has."""
    number = 1
    while (old := path.with_name(f"{path.name}.old{'' if number == 1 else number}")).exists():
        number += 1
    return old


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
