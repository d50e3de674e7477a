"""Signing in: a policy's name and key, or a connection string.

Whether they are right the namespace says; `site` asks it.
"""

from __future__ import annotations

from twinbus.console import layout
from twinbus.console.html import el
from twinbus.console.shapes import ROOT, field, notice

POLICY = "RootManageSharedAccessKey"


def page(problem: str | None = None, policy: str = POLICY, next_page: str = "") -> str:
    """The page, with what was wrong the last time."""
    name = el("input", name="policy", value=policy, autocomplete="username", maxlength=256, spellcheck="false")
    key = el(
        "input", name="key", type="password", autocomplete="current-password", required=True, autofocus=True,
        maxlength=2000,
    )  # fmt: skip
    return layout.bare(
        "Sign in",
        el("h1", "Twinbus"),
        el("p", "Sign in to look into this namespace."),
        notice("bad", problem) if problem else None,
        el(
            "form",
            el("input", type="hidden", name="next", value=next_page[:2000]),
            field("Policy", name),
            field("Key or connection string", key, "Kept in the broker's memory only, until you sign out."),
            el("button", "Sign in", class_="main"),
            method="post",
            action=f"{ROOT}sign-in",
            class_="stack",
        ),
    )
