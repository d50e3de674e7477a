"""The page that Prometheus reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from twinbus.admin.metrics import MetricsPage
from twinbus.model.metrics import Histogram, Labels, Numbers, Value

NAMESPACE = ("namespace", "contoso")


def page(numbers: Numbers) -> MetricsPage:
    async def read() -> Numbers:
        return numbers

    return MetricsPage(read)


async def families(made: MetricsPage) -> dict[str, tuple[str, dict[tuple[str, Labels], float]]]:
    return {
        family.name: (
            family.type,
            {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in family.samples},
        )
        for family in text_string_to_metric_families((await made.render()).decode())
    }


async def test_a_number_is_a_counter_or_a_gauge_as_the_table_says() -> None:
    found = await families(
        page({"twinbus_messages_accepted_total": {(NAMESPACE,): 3}, "twinbus_open_links": {(NAMESPACE,): 2}})
    )
    assert found["twinbus_messages_accepted"] == (
        "counter",
        {("twinbus_messages_accepted_total", (NAMESPACE,)): 3.0},
    )
    assert found["twinbus_open_links"] == ("gauge", {("twinbus_open_links", (NAMESPACE,)): 2.0})


async def test_labels_tell_numbers_of_one_name_apart() -> None:
    name = "twinbus_refusals_total"
    full: Labels = (NAMESPACE, ("reason", "full"))
    odd: Labels = (NAMESPACE, ("reason", 'a"b\n'))
    found = await families(page({name: {full: 1, odd: 2}}))
    assert found["twinbus_refusals"] == ("counter", {(name, full): 1.0, (name, odd): 2.0})


async def test_a_histogram_counts_in_each_bucket_what_the_smaller_ones_have() -> None:
    where: Labels = (NAMESPACE, ("store", "0"))
    found = await families(page({"twinbus_commit_fsync_seconds": {where: Histogram((0.01, 0.1), (5, 2, 1), 0.5)}}))
    kind, samples = found["twinbus_commit_fsync_seconds"]
    assert kind == "histogram"
    by_bound = {dict(labels).get("le", name.rpartition("_")[2]): value for (name, labels), value in samples.items()}
    assert by_bound == {"0.01": 5.0, "0.1": 7.0, "+Inf": 8.0, "count": 8.0, "sum": 0.5}


async def test_every_scrape_sees_the_numbers_of_its_moment() -> None:
    numbers: dict[str, dict[Labels, Value]] = {"twinbus_open_links": {(NAMESPACE,): 1}}
    made = page(numbers)
    key = ("twinbus_open_links", (NAMESPACE,))
    assert (await families(made))["twinbus_open_links"][1][key] == 1.0
    numbers["twinbus_open_links"] = {(NAMESPACE,): 5}
    assert (await families(made))["twinbus_open_links"][1][key] == 5.0


async def test_the_process_tells_of_itself() -> None:
    found = await families(page({}))
    assert found["process_resident_memory_bytes"][1][("process_resident_memory_bytes", ())] > 0
    assert found["process_open_fds"][1][("process_open_fds", ())] > 0
