"""Two candidates for the service by a lease: killed, stopped, cut off from the lease, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from danaus.core.clock import Deadline
from danaus.core.journal import read
from danaus.quorum.messages import Epoch
from danaus.testing.hosts import wait_for_state
from danaus.wire.secret import Secret

from .lease_servers import NO_ETCD, etcd
from .quorum_parts import LIMIT_S, SOURCE, Members


class CandidateProcess:
    """One candidate with an address, a folder and a journal of its own."""

    def __init__(self, name: str, folder: Path, state: Path, *options: str) -> None:
        self.address = f"unix:{folder}/{name}"
        self.journal = folder / f"{name}.jsonl"
        self._command = [
            sys.executable, "-m", "danaus.quorum.service", "--folder", str(state),
            "--address", self.address, "--secret", str(folder / "secret"),
            "--journal", str(self.journal), "--ledger", str(folder / "ledger"),
            "--lease-s", "2.0", *options,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environment)
        return self

    def strike(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            assert wait_for_state(self.process.pid, "T")

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(how)
        process.communicate(timeout=LIMIT_S)
        return process.returncode

    def lines(self, *events: str) -> list[dict[str, Any]]:
        return [line for line in read(self.journal) if line["event"] in events]

    def leads(self) -> bool:
        turns = self.lines("lease_taken", "lease_followed", "quorum_listening")
        return bool(turns) and turns[-1]["event"] == "quorum_listening"


class Pair:
    """Two candidates and members that know both; ``service`` of ``Members``."""

    def __init__(self, folder: Path, *, states: tuple[str, str], lease: str) -> None:
        self.folder = folder
        self.secret = Secret.create(folder / "secret")
        options = ("--lease", lease, "--expected-replicas", "2", "--heartbeat-limit-s", "3")
        one, two = (folder / state for state in states)
        self.a = CandidateProcess("ca", folder, one, *options)
        self.b = CandidateProcess("cb", folder, two, *options, "--standby")
        self.address = f"{self.a.address},{self.b.address}"

    def start(self) -> None:
        """Start the one that leads, then the one that stands by."""
        wait_until(self.a.start().leads)
        self.b.start()
        wait_until(lambda: bool(self.b.lines("lease_followed")))

    def close(self) -> None:
        for each in (self.a, self.b):
            if each.process is not None:
                each.strike(signal.SIGCONT)
                each.end(signal.SIGKILL)


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = Deadline.after(LIMIT_S)
    while not ready():
        assert not deadline.passed
        threading.Event().wait(0.02)


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with etcd(tmp_path_factory.mktemp("etcd")) as url:
        yield url


@pytest.fixture(params=["one folder", "two folders", "etcd"])
def pair(request, tmp_path_factory, server) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("p")
    if request.param == "etcd" and not server:
        pytest.skip(NO_ETCD)
    lease = {
        "one folder": "file",
        "two folders": f"file:{folder}/lease",
        "etcd": f"etcd:{server}/{folder.name}",
    }
    states = ("q", "q") if request.param == "one folder" else ("q1", "q2")
    made = Pair(folder, states=states, lease=lease[request.param])
    yield made
    made.close()


@pytest.fixture
def members(pair: Pair) -> Iterator[Members]:
    with Members(pair) as members:  # type: ignore[arg-type]
        yield members


def test_a_standby_takes_over_from_a_killed_leader_in_a_new_term(pair, members):
    pair.start()
    a, b = members.add("a"), members.add("b")
    assert members.form(a, b).epoch == Epoch(1, 1)
    a.commit(3)
    b.commit(3)
    assert pair.a.end(signal.SIGKILL) == -signal.SIGKILL
    told = members.form(a, b)
    assert told.epoch == Epoch(2, 1)
    assert (told.committed_step, told.start) == (3, "live"), "no step is lost"
    new = members.add("c")
    new.ask()
    assert "c#0 is ready to join" in a.changes.get(timeout=LIMIT_S).reason


def test_a_stopped_leader_says_nothing_when_it_goes_on_and_stands_by(pair, members):
    pair.start()
    a, b = members.add("a"), members.add("b")
    members.form(a, b)
    pair.a.strike(signal.SIGSTOP)
    a.ask()
    b.ask()
    told = [each.answer() for each in (a, b)]
    assert {each.epoch for each in told} == {Epoch(2, 1)}
    before = len(pair.a.lines("quorum_announced", "quorum_announced_again"))
    pair.a.strike(signal.SIGCONT)
    wait_until(lambda: bool(pair.a.lines("lease_followed")))
    assert members.form(a, b).epoch == Epoch(2, 2)
    assert len(pair.a.lines("quorum_announced", "quorum_announced_again")) == before
    # It is of use again: the leader of now ends, and it follows in its turn.
    assert pair.b.end() == 0
    assert members.form(a, b).epoch.term == 3
    assert len(pair.a.lines("lease_taken")) == 2


def test_a_leader_that_cannot_renew_leads_no_more_until_it_can(tmp_path_factory):
    """The lease's folder goes away and comes back: nobody could follow, so it leads again."""
    folder = tmp_path_factory.mktemp("p")
    pair = Pair(folder, states=("q1", "q2"), lease=f"file:{folder}/lease")
    try:
        with Members(pair) as members:  # type: ignore[arg-type]
            wait_until(pair.a.start().leads)
            a, b = members.add("a"), members.add("b")
            assert members.form(a, b).epoch == Epoch(1, 1)
            os.rename(folder / "lease", folder / "away")
            (folder / "lease").write_text("no folder")
            wait_until(lambda: bool(pair.a.lines("lease_followed")))
            assert pair.a.lines("lease_unreachable")
            a.ask()
            b.ask()
            (folder / "lease").unlink()
            os.rename(folder / "away", folder / "lease")
            assert a.answer() == b.answer()
            assert a.report.seen_epoch == Epoch(2, 1)
    finally:
        pair.close()


def test_one_that_is_started_again_does_not_wait_for_its_own_lease(pair, members):
    """Alone, with a lease that is longer than this test may take."""
    pair.a._command += ["--lease-s", "600"]
    wait_until(pair.a.start().leads)
    a, b = members.add("a"), members.add("b")
    members.form(a, b)
    pair.a.end(signal.SIGKILL)
    pair.a.start()
    assert members.form(a, b).epoch == Epoch(2, 1)
