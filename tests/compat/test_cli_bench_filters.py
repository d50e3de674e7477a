"""`twinbus bench-filters`, in its short form: the figures are there, and in the order that they must have."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from twinbus.cli import app

pytestmark = pytest.mark.feature("commands at a prompt")


@pytest.mark.timeout(120)
def test_the_cost_of_filters_is_measured() -> None:
    done = CliRunner().invoke(app, ["bench-filters", "--short", "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    cost = {(one["filters"], one["subscriptions"]): one["message_us"] for one in told["evaluation"]}
    assert {count for _, count in cost} == {1, 100, 2000}
    # An equality is looked up, however many there are; what has none is asked one by one.
    assert cost["SQL with an equality", 2000] < cost["SQL without", 2000] / 10
    assert cost["correlation", 2000] < cost["SQL without", 2000] / 10
    published = {(one["filters"], one["subscriptions"]): one for one in told["publishing"]}
    assert len(published) == 6
    assert all(one["per_s"] > 0 for one in published.values())
    assert published["true", 100]["copies"] == 100
