"""The page that Prometheus reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from twinbus.admin.metrics import MetricsPage


def families(page: bytes) -> dict[str, tuple[str, dict[tuple[tuple[str, str], ...], float]]]:
    return {
        family.name: (
            family.type,
            {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples},
        )
        for family in text_string_to_metric_families(page.decode())
    }


def test_a_number_is_a_counter_or_a_gauge_by_its_name() -> None:
    found = families(MetricsPage(lambda: {"sends_total": 3, "links": 2, "refused_too-large": 1}).render())
    assert found["twinbus_sends"] == ("counter", {(): 3.0})
    assert found["twinbus_links"] == ("gauge", {(): 2.0})
    assert found["twinbus_refused_too_large"] == ("gauge", {(): 1.0})


def test_labels_tell_numbers_of_one_name_apart() -> None:
    refused = {(("reason", "full"),): 1, (("reason", 'a"b\n'),): 2}
    found = families(MetricsPage(lambda: {"refused_total": refused}).render())
    assert found["twinbus_refused"] == ("counter", {(("reason", "full"),): 1.0, (("reason", 'a"b\n'),): 2.0})


def test_every_scrape_sees_the_numbers_of_its_moment() -> None:
    numbers = {"links": 1}
    page = MetricsPage(lambda: numbers)
    assert families(page.render())["twinbus_links"][1] == {(): 1.0}
    numbers["links"] = 5
    assert families(page.render())["twinbus_links"][1] == {(): 5.0}


def test_the_process_tells_of_itself() -> None:
    assert families(MetricsPage(dict).render())["process_resident_memory_bytes"][1][()] > 0
