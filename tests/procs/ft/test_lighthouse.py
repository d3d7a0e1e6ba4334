"""The quorum service from Python, and a client that trains nothing."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from danaus.core.errors import ConfigError, NoQuorum, ServiceLost
from danaus.ft import LighthouseClient, LighthouseServer
from danaus.testing.hosts import wait_for_state
from danaus.wire.address import Address

LIMIT_S = 40.0


def ask(client, **replicas):
    """Let replicas ask at once, each with its step; return what each is told."""
    with ThreadPoolExecutor() as threads:
        asked = {
            name: threads.submit(client.quorum, name, LIMIT_S, step=step, address=f"unix:/{name}")
            for name, step in replicas.items()
        }
        return {name: each.result() for name, each in asked.items()}


def test_two_replicas_meet_and_one_leaves():
    with (
        LighthouseServer(min_replicas=1, expected_replicas=2, join_timeout_ms=20_000) as server,
        LighthouseClient(server.address(), LIMIT_S, secret_path=server.secret_path) as client,
    ):
        told = ask(client, a=0, b=0)
        assert told["a"] == told["b"]
        assert [each.replica_id for each in told["a"].participants] == ["a", "b"]
        assert [each.address for each in told["a"].participants] == ["unix:/a", "unix:/b"]
        again = ask(client, a=3, b=3)["a"]
        assert again.quorum_id > told["a"].quorum_id
        assert again.committed_step == 3
        client.leave("b", "it is repaired")
        with ThreadPoolExecutor() as threads:
            stays = threads.submit(client.quorum, "a", LIMIT_S, step=3)
            with pytest.raises(NoQuorum, match="it is repaired"):
                client.quorum("b", LIMIT_S, step=3)
            (alone,) = stays.result().participants
        assert alone.replica_id == "a"


def test_a_heartbeat_reaches_the_service_or_says_why_not(tmp_path):
    with LighthouseServer("127.0.0.1:0", folder=tmp_path / "run", http="127.0.0.1:0") as server:
        assert server.page.startswith("http://127.0.0.1:")
        address = server.address()
        with LighthouseClient(address, secret_path=server.secret_path) as client:
            client.heartbeat("a", timeout=timedelta(seconds=LIMIT_S))
    assert (tmp_path / "run" / "journal.jsonl").exists(), "a folder of one's own stays"
    with (
        LighthouseClient(address, secret_path=tmp_path / "run" / "secret") as client,
        pytest.raises(ServiceLost),
    ):
        client.heartbeat("a", timeout=0.5)


def test_it_listens_where_it_is_told_and_goes_with_its_folder():
    server = LighthouseServer()
    place = Address.parse(server.address())
    folder, pid = server.secret_path.parent, server.pid
    connection = http.client.HTTPConnection(place.host, place.port, timeout=LIMIT_S)
    connection.connect()
    connection.close()
    server.shutdown()
    server.shutdown()
    assert not folder.exists()
    assert not os.path.exists(f"/proc/{pid}")


def test_what_cannot_be_is_said_in_one_sentence(tmp_path):
    with (
        LighthouseServer() as first,
        pytest.raises(ConfigError, match=r"another process listens|cannot be bound"),
    ):
        LighthouseServer(first.address().removeprefix("tcp:"), folder=tmp_path)


STARTS = (
    "from danaus.ft import LighthouseServer; print(LighthouseServer().pid, flush=True); input()"
)


def test_it_ends_with_whoever_started_it_however_that_ends():
    source = str(Path(__file__).parents[3] / "src")
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    assert not wait_for_state(pid, "ZX") or Path(f"/proc/{pid}").exists(), "it is dead or gone"
