"""The page that Prometheus reads."""

from __future__ import annotations

import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

from twinbus.admin.metrics import page
from twinbus.model.metrics import Histogram, Labels, Numbers, Value

NAMESPACE = ("namespace", "contoso")


def families(numbers: Numbers) -> dict[str, tuple[str, dict[tuple[str, Labels], float]]]:
    return {
        family.name: (
            family.type,
            {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in family.samples},
        )
        for family in text_string_to_metric_families(page(numbers).decode())
    }


def test_a_number_is_a_counter_or_a_gauge_as_the_table_says() -> None:
    found = families({"twinbus_messages_accepted_total": {(NAMESPACE,): 3}, "twinbus_open_links": {(NAMESPACE,): 2}})
    assert found["twinbus_messages_accepted"] == (
        "counter",
        {("twinbus_messages_accepted_total", (NAMESPACE,)): 3.0},
    )
    assert found["twinbus_open_links"] == ("gauge", {("twinbus_open_links", (NAMESPACE,)): 2.0})


def test_labels_tell_numbers_of_one_name_apart() -> None:
    name = "twinbus_refusals_total"
    full: Labels = (NAMESPACE, ("reason", "full"))
    odd: Labels = (NAMESPACE, ("reason", 'a"b\n'))
    found = families({name: {full: 1, odd: 2}})
    assert found["twinbus_refusals"] == ("counter", {(name, full): 1.0, (name, odd): 2.0})


def test_a_histogram_counts_in_each_bucket_what_the_smaller_ones_have() -> None:
    where: Labels = (NAMESPACE, ("store", "0"))
    found = families({"twinbus_commit_fsync_seconds": {where: Histogram((0.01, 0.1), (5, 2, 1), 0.5)}})
    kind, samples = found["twinbus_commit_fsync_seconds"]
    assert kind == "histogram"
    by_bound = {dict(labels).get("le", name.rpartition("_")[2]): value for (name, labels), value in samples.items()}
    assert by_bound == {"0.01": 5.0, "0.1": 7.0, "+Inf": 8.0, "count": 8.0, "sum": 0.5}


def test_every_scrape_sees_the_numbers_of_its_moment() -> None:
    numbers: dict[str, dict[Labels, Value]] = {"twinbus_open_links": {(NAMESPACE,): 1}}
    key = ("twinbus_open_links", (NAMESPACE,))
    assert families(numbers)["twinbus_open_links"][1][key] == 1.0
    numbers["twinbus_open_links"] = {(NAMESPACE,): 5}
    assert families(numbers)["twinbus_open_links"][1][key] == 5.0


def test_a_broker_that_starts_does_not_import_what_only_a_scrape_needs() -> None:
    program = "import sys, twinbus.broker.process; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_process_tells_of_itself() -> None:
    found = families({})
    assert found["process_resident_memory_bytes"][1][("process_resident_memory_bytes", ())] > 0
    assert found["process_open_fds"][1][("process_open_fds", ())] > 0
