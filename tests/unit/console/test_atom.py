"""Descriptions of entities: written anew, and changed without losing what was not touched."""

from __future__ import annotations

from twinbus.console import atom

ENTRY = b"""<entry xmlns="http://www.w3.org/2005/Atom"><title>q</title><content type="application/xml">
<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><LockDuration>PT30S</LockDuration>
<AuthorizationRules><AuthorizationRule><KeyName>a</KeyName></AuthorizationRule></AuthorizationRules>
<ForwardTo>other</ForwardTo></QueueDescription></content></entry>"""


def test_a_new_one_says_only_what_was_given() -> None:
    made = atom.new("queue", {"MaxDeliveryCount": "3", "LockDuration": "<x>"}).decode()
    assert "<LockDuration>&lt;x&gt;</LockDuration><MaxDeliveryCount>3</MaxDeliveryCount>" in made
    assert atom.kind_in(made.encode()) == "queue"


def test_a_change_keeps_policies_and_takes_away_what_is_empty() -> None:
    changed = atom.changed(ENTRY, {"LockDuration": "PT1M", "ForwardTo": "", "UserMetadata": "a & b"})
    assert atom.settings_in(changed) == {"LockDuration": "PT1M", "UserMetadata": "a & b"}
    assert b"KeyName" in changed
    assert atom.kind_in(changed) == "queue"


def test_what_can_be_set_depends_on_the_kind() -> None:
    assert "RequiresSession" in atom.settable("subscription")
    assert "RequiresSession" not in atom.settable("topic")
    assert "EnablePartitioning" not in atom.settable("subscription")
