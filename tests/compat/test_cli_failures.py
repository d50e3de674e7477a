"""What commands do when something is not as it should be, and over TLS."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import BrokerProcess, NewQueue, free_ports, wait_for
from support.prompt import SOON_S, Follow, Prompt, bodies
from twinbus.broker.certs import make_certificates
from twinbus.client import connect
from twinbus.client.messages import build

pytest_plugins = ["compat.conftest_cli"]
pytestmark = pytest.mark.feature("commands at a prompt")


def test_failures_are_sentences(run: Prompt, broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    for words in (("peek", "nope"), ("send", "nope", "x"), ("receive", "nope"), ("dlq", "list", "nope")):
        assert "'nope' could not be found" in run(*words, code=1).stderr
    stranger = Prompt(broker, broker.connection_string("stranger", "a-key-that-opens-nothing"))
    for words in (("peek", queue), ("entity", "list")):
        told = stranger(*words, code=1).stderr
        assert "not valid here" in told
        assert "TrackingId: " in told
    (closed,) = free_ports(1)
    nowhere = Prompt(broker, broker.connection_string().replace(str(broker.amqp_port), str(closed)))
    assert f"No connection to 127.0.0.1:{closed}" in nowhere("peek", queue, code=1).stderr
    assert "Is it running" in run("entity", "list", "--http-port", str(closed), code=1).stderr


def test_whoever_waits_in_vain_can_give_up(follow: Follow, new_queue: NewQueue, broker: BrokerProcess) -> None:
    wait_for(lambda: broker.metric("twinbus_open_links") == 0, "the end of what was before")
    process = follow("receive", new_queue(), "--wait", "600")
    # Two links for the token, and the receiver's.
    wait_for(lambda: broker.metric("twinbus_open_links") >= 3, "the receiver")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SOON_S)
    assert (process.returncode, out, err) == (130, "", "twinbus: interrupted\n")


def connected(port: int) -> bool:
    """Whether a process of this machine has a socket to the port, as the system tells: proc_net(5)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(int(row[2].rpartition(":")[2], 16) == port and row[9] != "0" for row in rows)


def test_a_connection_that_is_lost_tells_what_is_certain_and_what_is_not(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, options=("--queue", "orders")) as broker:
        process = Prompt(broker).start("send", "orders", "-", "--json")
        assert process.stdin is not None
        process.stdin.write("one\ntwo\n")
        process.stdin.flush()
        wait_for(lambda: broker.count("orders") == 2, "the first lines")
        broker.kill()
        # Only then is it certain that nothing more is sent.
        wait_for(lambda: not connected(broker.amqp_port), "the command's notice of the loss")
        out, err = process.communicate("three\nfour\n", timeout=SOON_S)
    assert process.returncode == 1
    assert json.loads(out) == {"accepted": 2, "refused": [], "unknown": []}
    assert "nothing was sent from line 3 on" in err
    assert "The connection was lost" in err
    assert "Traceback" not in err


async def test_a_row_is_cut_for_terminals_alone(run: Prompt, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send([build(b"x" * 200, message_id="wide")])
    controller, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "twinbus", "peek", queue],
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
            env={**run.environment, "COLUMNS": "80", "TERM": "xterm"},
        )
        process.communicate(timeout=SOON_S)
        on_terminal = os.read(controller, 65536).decode().splitlines()
    finally:
        os.close(controller)
        os.close(terminal)
    assert on_terminal[0].startswith("\x1b[1mNUMBER")
    assert len(on_terminal[1]) == 80
    assert on_terminal[1].endswith("…")
    assert run("peek", queue).stdout.endswith("x" * 200 + "\n")


def test_everything_works_over_tls_with_a_private_authority(tmp_path: Path) -> None:
    authority = tmp_path / "tls"
    make_certificates(authority, [])
    amqps, https = free_ports(2)
    options = ("--tls", str(authority), "--amqps-port", str(amqps), "--https-port", str(https))
    with BrokerProcess(tmp_path / "broker", options=options) as broker:
        text = f"Endpoint=sb://localhost:{amqps};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={broker.key}"
        run = Prompt(broker, text)
        run.environment |= {"TWINBUS_CA": str(authority / "ca.pem")}
        run("entity", "create", "secure")
        run("send", "secure", "hello")
        assert bodies(run.json("receive", "secure")) == ["hello"]
        plain = text + ";UseDevelopmentEmulator=true"
        for words, sentence in {
            ("peek", "secure", "-c", plain): "does not answer as a broker",
            ("entity", "list", "-c", plain, "--http-port", str(https)): "a port for TLS",
            ("peek", "secure", "-c", text.replace(str(amqps), str(broker.amqp_port))): "does not speak TLS",
            ("entity", "list", "--http-port", str(broker.http_port)): "does not speak TLS",
            ("peek", "secure", "-c", plain.replace(str(amqps), str(broker.http_port))): "does not answer as a broker",
        }.items():
            assert sentence in run(*words, code=1).stderr, words
        del run.environment["TWINBUS_CA"]
        assert "is not trusted" in run("send", "secure", "hello", code=1).stderr
        assert "is not trusted" in run("entity", "list", code=1).stderr
