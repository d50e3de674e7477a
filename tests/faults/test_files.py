"""What happens to the files of a namespace: lost, older, swapped, foreign. Accepted messages stay, whatever is done.

The judge is a send log: what the official client was told is accepted. Each test ends with the right files, or with an
operator's word, and finds every message once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from support.broker import BrokerProcess, HttpError, wait_for
from support.disks import copy_data
from support.forking import run_twinbus

QUEUES = [f"queue-{number}" for number in range(4)]  # One on each store.
MESSAGES = 25


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", options=("--no-console",))
    yield process
    process.kill()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """The directory of a namespace with messages, which was stopped; what was accepted, by queue."""
    with BrokerProcess(tmp_path_factory.mktemp("prepared"), options=("--no-console",)) as broker:
        for queue in QUEUES:
            broker.create_queue(queue)
        log = send(broker, QUEUES, "first")
        assert broker.stop() == 0
    return broker.data, log


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """The same, killed at once, so that everything is in the logs."""
    with BrokerProcess(tmp_path_factory.mktemp("killed"), options=("--no-console",)) as broker:
        broker.create_queue("queue-0")
        log = send(broker, ["queue-0"], "first")
        broker.kill()
    return broker.data, log


@pytest.fixture
def sent(broker: BrokerProcess, prepared: tuple[Path, dict[str, list[str]]]) -> dict[str, list[str]]:
    """What was accepted in a namespace whose files the broker has, though it is not started."""
    directory, log = prepared
    copy_data(directory, broker.data)
    return dict(log)


def send(broker: BrokerProcess, queues: list[str], mark: str) -> dict[str, list[str]]:
    log: dict[str, list[str]] = {}
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        for queue in queues:
            ids = [f"{queue}-{mark}-{number}" for number in range(MESSAGES)]
            with client.get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage(b"x", message_id=each) for each in ids])
            log[queue] = ids
    return log


def is_all_there(broker: BrokerProcess, log: dict[str, list[str]]) -> None:
    """Each message is in its queue once; the queues are empty then."""
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        for queue, ids in log.items():
            found: list[str] = []
            with client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
                while len(found) < len(ids):
                    messages = receiver.receive_messages(len(ids), max_wait_time=10)
                    assert messages, f"{queue}: only {len(found)} of {len(ids)} are there"
                    found += [str(message.message_id) for message in messages]
                assert not receiver.peek_messages(1)
            assert sorted(found) == sorted(ids)


def refusal(broker: BrokerProcess) -> str:
    """Why it does not start."""
    with pytest.raises(AssertionError):
        broker.start()
    broker.process = None
    said = broker.log
    assert "Traceback" not in said
    return said


def contents(broker: BrokerProcess) -> dict[str, bytes]:
    """The databases and their logs, byte for byte."""
    return {path.name: path.read_bytes() for path in sorted(broker.data.glob("*.db*")) if path.suffix != ".reserve"}


def states(broker: BrokerProcess) -> list[str]:
    return [store["state"] for store in stores(broker)]


def stores(broker: BrokerProcess) -> list[dict[str, str]]:
    status, text = broker.request("GET", "/$api/stores")
    assert status == 200
    found: list[dict[str, str]] = json.loads(text)["stores"]
    return found


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> dict[str, object]:
    status, text = broker.request(method, f"/$api/{path}", None if body is None else json.dumps(body))
    assert status == 200, text
    found: dict[str, object] = json.loads(text)
    return found


def test_files_behind_links_are_the_files_that_they_are(broker: BrokerProcess, sent: dict[str, list[str]]) -> None:
    """A store on another disk: its log is there, beside the file itself, and so is the room that is laid aside."""
    elsewhere = broker.directory / "elsewhere"
    elsewhere.mkdir()
    for name in ("store-1.db", "catalog.db"):
        (broker.data / name).rename(elsewhere / name)
        (broker.data / name).symlink_to(elsewhere / name)
    broker.start()
    sent["queue-1"] = sent["queue-1"] + send(broker, ["queue-1"], "second")["queue-1"]
    broker.create_queue("later")
    broker.kill()
    assert (elsewhere / "store-1.db-wal").stat().st_size
    assert (elsewhere / "store-1.db.reserve").exists()
    assert "whole." in twinbus("verify", str(broker.data)).stdout
    with broker:
        assert states(broker) == ["up"] * 4
        assert broker.count("later") == 0
        is_all_there(broker, sent)


def test_files_that_are_taken_away_from_a_running_broker(broker: BrokerProcess, sent: dict[str, list[str]]) -> None:
    """SQLite would go on writing into files that nobody can open any more. Store 1 is removed, 2 replaced, 3 moved."""
    broker.start()
    away = broker.directory / "away"
    away.mkdir()
    for file in broker.data.glob("store-1.db*"):
        file.unlink()
    shutil.copy(broker.data / "store-2.db", away)
    (away / "store-2.db").rename(broker.data / "store-2.db")
    for file in broker.data.glob("store-3.db*"):
        file.rename(away / file.name)
    for queue, ids in send(broker, QUEUES, "second").items():
        sent[queue] = sent[queue] + ids
    wait_for(lambda: states(broker) == ["up", *["failed"] * 3], "the stores to notice it")
    assert all("while it was served" in store["reason"] for store in stores(broker)[1:])
    is_all_there(broker, {"queue-0": sent.pop("queue-0")})
    for name in ("store-1.db", "store-2.db"):
        for file in broker.data.glob(f"{name}-*"):
            file.unlink()
        (rescued,) = broker.data.glob(f"{name}.rescued-*")
        rescued.rename(broker.data / name)
    for file in away.iterdir():
        file.rename(broker.data / file.name)
    for number in (1, 2, 3):
        ask(broker, "POST", f"stores/{number}/up", {})
    assert states(broker) == ["up"] * 4
    is_all_there(broker, sent)


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
def test_a_catalog_that_is_taken_away_from_a_running_broker(
    broker: BrokerProcess, sent: dict[str, list[str]], how: str
) -> None:
    """Entities would be made in a file that nobody can open any more; messages go on meanwhile."""
    path = broker.data / "catalog.db"
    older = path.read_bytes()
    broker.start()
    broker.create_queue("before")
    away = broker.directory / "away"
    away.mkdir()
    for file in broker.data.glob("catalog.db*"):
        file.rename(away / file.name)
    if how != "moved":
        shutil.rmtree(away)
    if how == "replaced":
        path.write_bytes(older)
    with pytest.raises(HttpError, match=r"503: .*catalog could not be written: its files were"):
        broker.create_queue("later")
    assert "takes no changes" in broker.request("GET", "/readyz")[1]
    assert "its files were" in str(ask(broker, "GET", "status")["catalog_problem"])
    for queue, ids in send(broker, QUEUES[:1], "second").items():
        sent[queue] = sent[queue] + ids
    if how == "moved":
        for file in away.iterdir():
            file.rename(broker.data / file.name)
    else:
        assert broker.stop() == 0
        said = refusal(broker)
        assert "catalog.db.rescued-" in said if how == "removed" else "The catalog is older" in said
        for file in broker.data.glob("catalog.db-*"):
            file.unlink()
        (rescued,) = broker.data.glob("catalog.db.rescued-*")
        rescued.rename(path)
        broker.start()
    broker.create_queue("later")
    assert broker.count("before") == 0
    is_all_there(broker, sent)


def test_no_other_directory_is_served_where_the_id_is_given(
    broker: BrokerProcess, sent: dict[str, list[str]], killed: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    with broker:
        namespace_id = str(ask(broker, "GET", "status")["id"])
        broker.stop()
    given = ("--namespace-id", namespace_id)
    stranger = BrokerProcess(tmp_path / "stranger", options=("--no-console", *given))
    copy_data(killed[0], stranger.data)
    before = contents(stranger)
    assert "has the id" in refusal(stranger)
    assert contents(stranger) == before
    empty = BrokerProcess(tmp_path / "empty", options=("--no-console", *given))
    assert "is not there" in refusal(empty)
    assert contents(empty) == {}
    broker.options += given
    with broker:
        is_all_there(broker, sent)


def orphans(broker: BrokerProcess) -> dict[str, int]:
    """What is set aside, by name: its number."""
    found = ask(broker, "GET", "orphans")["orphans"]
    assert isinstance(found, list)
    return {each["name"]: each["number"] for each in found}


def twinbus(*words: str) -> subprocess.CompletedProcess[str]:
    done = run_twinbus(list(words), os.environ, timeout_s=60)
    assert "Traceback" not in done.stderr
    return done


# The catalog


def test_a_lost_catalog_loses_no_message(broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path) -> None:
    shutil.move(broker.data / "catalog.db", tmp_path / "catalog.db")
    before = contents(broker)
    said = refusal(broker)
    assert "catalog.db is missing" in said
    assert "twinbus catalog rebuild" in said
    assert contents(broker) == before
    shutil.move(tmp_path / "catalog.db", broker.data / "catalog.db")
    is_all_there(broker.start(), sent)


@pytest.mark.parametrize("harmed", ["catalog.db", "catalog.db-wal"])
def test_a_catalog_without_its_log_or_the_other_way_round_is_left_as_it_is(
    broker: BrokerProcess, killed: tuple[Path, dict[str, list[str]]], tmp_path: Path, harmed: str
) -> None:
    copy_data(killed[0], broker.data)
    shutil.copy(broker.data / harmed, tmp_path / "right")
    (broker.data / harmed).write_bytes(b"")
    before = contents(broker)
    assert "catalog.db is missing or empty" in refusal(broker)
    assert contents(broker) == before
    shutil.copy(tmp_path / "right", broker.data / harmed)
    is_all_there(broker.start(), killed[1])


def test_a_lost_catalog_is_made_anew_from_what_the_stores_remember(
    broker: BrokerProcess, sent: dict[str, list[str]]
) -> None:
    (broker.data / "catalog.db").unlink()
    made = twinbus("catalog", "rebuild", str(broker.data), "--yes")
    assert made.returncode == 0, made.stderr
    broker.start()
    assert orphans(broker) == {}
    is_all_there(broker, sent)


def test_a_catalog_is_made_anew_without_the_stores_that_are_missing(
    broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    """What the catalog does not have then is in the store that is put back later; no number was given out twice."""
    for name in ("catalog.db", "store-1.db"):
        shutil.move(broker.data / name, tmp_path / name)
    (broker.data / "store-2.db").rename(tmp_path / "store-2.db")
    (broker.data / "store-2.db").write_bytes(b"not a database, and longer than nothing" * 100)
    before = contents(broker)
    refused = twinbus("catalog", "rebuild", str(broker.data), "--yes")
    assert refused.returncode == 1
    assert "store-2.db cannot be read" in refused.stderr or "store-2.db could not be read" in refused.stderr
    assert "move this one out of the directory" in refused.stderr
    assert contents(broker) == before
    (broker.data / "store-2.db").unlink()
    made = json.loads(twinbus("catalog", "rebuild", str(broker.data), "--yes", "--json").stdout)
    assert made == {"entities": ["queue-0", "queue-3"], "unknown": 0, "missing": [1, 2], "moved_to": None}
    assert not list(broker.data.glob("catalog.db.new*"))
    broker.start()
    assert states(broker) == ["up", "set-aside", "set-aside", "up"]
    assert "that nobody remembers" in stores(broker)[1]["reason"]
    broker.create_queue("newest")
    for name in ("store-1.db", "store-2.db"):
        shutil.copy(tmp_path / name, broker.data / name)
        ask(broker, "POST", f"stores/{name[6]}/up", {})
    assert states(broker) == ["up"] * 4
    for name, number in orphans(broker).items():
        assert name in ("queue-1", "queue-2")
        ask(broker, "POST", f"orphans/{number}/adopt", {})
    is_all_there(broker, sent | {"newest": []})


def test_an_older_catalog_is_refused_and_loses_no_message(
    broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    shutil.copy(broker.data / "catalog.db", tmp_path / "older.db")
    broker.start()
    broker.create_queue("later")
    sent |= send(broker, ["later"], "second")
    broker.stop()
    shutil.copy(broker.data / "catalog.db", tmp_path / "right.db")
    shutil.copy(tmp_path / "older.db", broker.data / "catalog.db")
    before = contents(broker)
    said = refusal(broker)
    assert "The catalog is older than its stores" in said
    assert "twinbus catalog accept" in said
    assert contents(broker) == before
    shutil.copy(tmp_path / "right.db", broker.data / "catalog.db")
    is_all_there(broker.start(), sent)


def test_an_older_catalog_can_be_accepted_and_what_it_does_not_know_is_adopted(
    broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    shutil.copy(broker.data / "catalog.db", tmp_path / "older.db")
    broker.start()
    broker.create_queue("later")
    sent |= send(broker, ["later"], "second")
    broker.stop()
    shutil.copy(tmp_path / "older.db", broker.data / "catalog.db")
    assert twinbus("catalog", "accept", str(broker.data), "--yes").returncode == 0
    broker.start()
    number = orphans(broker)["later"]
    broker.create_queue("newest")  # It gets no number that a store knows already.
    assert ask(broker, "POST", f"orphans/{number}/adopt", {}) == {"name": "later"}
    is_all_there(broker, sent)
    is_all_there(broker, {"newest": []})


# A row that cannot be read


def test_a_row_that_cannot_be_read_is_kept_and_its_entity_is_not_absent(
    broker: BrokerProcess, sent: dict[str, list[str]]
) -> None:
    with apsw.Connection(str(broker.data / "catalog.db")) as catalog:
        [(document, checksum)] = catalog.execute("SELECT document, checksum FROM entity WHERE name = 'queue-1'")
        catalog.execute("UPDATE entity SET document = '{\"from\": \"the future\"}' WHERE name = 'queue-1'")
    catalog.close()
    broker.start()
    assert broker.request("GET", "/queue-1?api-version=2021-05")[0] == 503
    status, text = broker.request("PUT", "/queue-1?api-version=2021-05", broker_queue())
    assert status == 409, text
    unreadable = ask(broker, "GET", "orphans")["unreadable"]
    assert isinstance(unreadable, list)
    assert unreadable[0]["document"] == '{"from": "the future"}'
    others = {queue: ids for queue, ids in sent.items() if queue != "queue-1"}
    is_all_there(broker, others)
    broker.stop()
    with apsw.Connection(str(broker.data / "catalog.db")) as catalog:
        catalog.execute("UPDATE entity SET document = ? WHERE name = 'queue-1'", (document,))
    catalog.close()
    assert checksum is not None
    is_all_there(broker.start(), {"queue-1": sent["queue-1"]})


def broker_queue() -> str:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription'
        ' xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
    )


# Stores


def swap(data: Path, other: Path) -> None:
    one, two, between = data / "store-1.db", data / "store-2.db", data / "between"
    one.rename(between)
    two.rename(one)
    between.rename(two)


def lose(data: Path, other: Path) -> None:
    (data / "store-1.db").rename(other / "store-1.db")


def empty(data: Path, other: Path) -> None:
    shutil.copy(data / "store-1.db", other / "store-1.db")
    (data / "store-1.db").write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "in_doubt", "found"),
    [(swap, {1, 2}, "is messaging store 2 of this namespace"), (lose, {1}, "is missing"), (empty, {1}, "is missing")],
)
def test_what_is_in_doubt_is_set_aside_and_the_rest_is_served(
    broker: BrokerProcess,
    sent: dict[str, list[str]],
    tmp_path: Path,
    harm: Callable[[Path, Path], None],
    in_doubt: set[int],
    found: str,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    harm(broker.data, other)
    before = contents(broker)
    broker.start()
    assert states(broker) == ["set-aside" if number in in_doubt else "up" for number in range(4)]
    assert found in stores(broker)[1]["reason"]
    assert f"store {min(in_doubt)}" in broker.request("GET", "/readyz")[1]
    assert broker.request("POST", "/$api/stores/1/up", "{}")[0] == 503
    is_all_there(broker, {queue: ids for queue, ids in sent.items() if int(queue[-1]) not in in_doubt})
    after = contents(broker)
    assert [after.get(f"store-{number}.db") for number in in_doubt] == [
        before.get(f"store-{number}.db") for number in in_doubt
    ]
    broker.stop()
    if harm is swap:
        swap(broker.data, other)
    else:
        shutil.copy(other / "store-1.db", broker.data / "store-1.db")
    broker.start()
    assert states(broker) == ["up"] * 4
    is_all_there(broker, {queue: ids for queue, ids in sent.items() if int(queue[-1]) in in_doubt})


def test_a_store_of_another_namespace_is_set_aside(
    broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "stranger", options=("--no-console",)) as stranger:
        stranger.create_queue("theirs")
        stranger.stop()
        shutil.copy(broker.data / "store-1.db", tmp_path / "right.db")
        shutil.copy(stranger.data / "store-1.db", broker.data / "store-1.db")
    broker.start()
    assert states(broker) == ["up", "set-aside", "up", "up"]
    assert broker.request("POST", "/$api/stores/1/accept", "{}")[0] == 403
    shutil.copy(tmp_path / "right.db", broker.data / "store-1.db")
    ask(broker, "POST", "stores/1/up", {})
    is_all_there(broker, sent)


def test_an_older_store_is_set_aside_until_somebody_accepts_it(
    broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    shutil.copy(broker.data / "store-1.db", tmp_path / "older.db")
    broker.start()
    later = send(broker, ["queue-1"], "second")
    broker.stop()
    shutil.copy(broker.data / "store-1.db", tmp_path / "right.db")
    shutil.copy(tmp_path / "older.db", broker.data / "store-1.db")
    broker.start()
    assert states(broker) == ["up", "set-aside", "up", "up"]
    assert "older than what was served" in stores(broker)[1]["reason"]
    shutil.copy(tmp_path / "right.db", broker.data / "store-1.db")
    ask(broker, "POST", "stores/1/up", {})
    is_all_there(broker, sent | {"queue-1": sent["queue-1"] + later["queue-1"]})
    broker.stop()
    shutil.copy(tmp_path / "older.db", broker.data / "store-1.db")
    broker.start()
    ask(broker, "POST", "stores/1/accept", {})
    assert states(broker) == ["up"] * 4
    is_all_there(broker, {"queue-1": sent["queue-1"]})
    broker.stop()
    broker.start()
    assert states(broker) == ["up"] * 4


def test_an_older_store_of_the_same_opening_is_set_aside(broker: BrokerProcess, sent: dict[str, list[str]]) -> None:
    """Copied a moment before a kill: the catalog has noted nothing meanwhile, but the directory has."""
    broker.start()
    older = {path.name: path.read_bytes() for path in broker.data.glob("store-1.db*")}
    later = send(broker, ["queue-1"], "second")
    broker.kill()
    right = {path.name: path.read_bytes() for path in broker.data.glob("store-1.db*")}

    def put(files: dict[str, bytes]) -> None:
        for path in broker.data.glob("store-1.db*"):
            path.unlink()
        for name, content in files.items():
            (broker.data / name).write_bytes(content)

    put(older)
    found = twinbus("verify", str(broker.data))
    assert (found.returncode, "older than what was served" in found.stdout) == (1, True), found.stdout
    broker.start()
    assert states(broker) == ["up", "set-aside", "up", "up"]
    assert "older than what was served: its journal ends with row" in stores(broker)[1]["reason"]
    put(right)
    ask(broker, "POST", "stores/1/up", {})
    is_all_there(broker, {"queue-1": sent["queue-1"] + later["queue-1"]})
    broker.stop()
    put(older)
    broker.start()
    assert states(broker) == ["up", "set-aside", "up", "up"]
    ask(broker, "POST", "stores/1/accept", {})
    broker.restart()
    assert states(broker) == ["up"] * 4
    is_all_there(broker, sent)


def test_a_log_that_has_lost_commits_is_noticed(
    broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    log = broker.data / "store-0.db-wal"
    broker.start()
    send(broker, ["queue-0"], "second")
    length = log.stat().st_size
    later = send(broker, ["queue-0"], "third")["queue-0"]
    broker.kill()
    shutil.copy(log, tmp_path)
    os.truncate(log, length)
    found = twinbus("verify", str(broker.data))
    assert (found.returncode, "has lost its last commits" in found.stdout) == (1, True), found.stdout
    broker.start()
    assert states(broker)[0] == "set-aside"
    assert "older than what was served" in stores(broker)[0]["reason"]
    shutil.copy(tmp_path / log.name, log)
    ask(broker, "POST", "stores/0/up", {})
    second = [name.replace("third", "second") for name in later]
    is_all_there(broker, {"queue-0": sent["queue-0"] + second + later})


def test_a_store_that_has_lost_its_whole_journal_is_noticed(
    broker: BrokerProcess, killed: tuple[Path, dict[str, list[str]]]
) -> None:
    copy_data(killed[0], broker.data)
    with apsw.Connection(str(broker.data / "store-0.db")) as store:
        store.execute(
            "DELETE FROM journal; DELETE FROM message; DELETE FROM body; UPDATE queue SET active = 0, bytes = 0"
        )
        store.execute("UPDATE queue SET next_seq = 1")
    store.close()
    assert "has lost its last commits" in twinbus("verify", str(broker.data)).stdout


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_room_that_cannot_be_laid_aside_is_named(broker: BrokerProcess, sent: dict[str, list[str]], kind: str) -> None:
    place = broker.data / "store-1.db.reserve"
    place.mkdir() if kind == "directory" else os.mkfifo(place)
    broker.start()
    assert states(broker) == ["up", "failed", "up", "up"]
    reason = stores(broker)[1]["reason"]
    assert "Room for a full disk cannot be laid aside in" in reason
    assert "store-1.db.reserve: " in reason
    place.rmdir() if kind == "directory" else place.unlink()
    ask(broker, "POST", "stores/1/up", {})
    is_all_there(broker, sent)


def test_a_lost_store_is_replaced_by_an_operator_s_word_only(
    broker: BrokerProcess, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    shutil.move(broker.data / "store-1.db", tmp_path / "store-1.db")
    broker.start()
    assert states(broker)[1] == "set-aside"
    assert not (broker.data / "store-1.db").exists()
    assert broker.request("POST", "/$api/stores/1/replace", "{}")[0] == 400
    ask(broker, "POST", "stores/1/replace", {"confirm": 1})
    assert states(broker) == ["up"] * 4
    is_all_there(broker, sent | {"queue-1": []})
    again = send(broker, ["queue-1"], "second")
    broker.kill()
    broker.start()
    assert states(broker) == ["up"] * 4
    is_all_there(broker, again)


def test_a_replaced_store_is_kept_beside(broker: BrokerProcess, sent: dict[str, list[str]]) -> None:
    (broker.data / "store-1.db").write_bytes(b"not a database, and longer than nothing" * 100)
    broker.start()
    moved = ask(broker, "POST", "stores/1/replace", {"confirm": 1})["moved_to"]
    assert (broker.data / str(moved)).read_bytes().startswith(b"not a database")
    is_all_there(broker, sent | {"queue-1": []})
