"""A plain loop under ``Loop``, in plain processes: only the quorum service sees to them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.procs.ft.loop_parts import HOLD, PLAN, network, optimizer_of, plain_bits

from danaus.core.clock import Deadline
from danaus.core.journal import read
from danaus.ft.plain_work import PlainWork

SOURCE = Path(__file__).parents[3] / "src"
LIMIT_S = 50.0


class Run:
    """A quorum service, and replicas that are forked in a folder."""

    heartbeat_limit_s = 4.0
    addresses: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.lines: dict[str, list[str]] = {}
        self._text = b""
        gate, self._gate = os.pipe()
        self.service = self.start_service()
        script = str(Path(__file__).parent / "loop_parts.py")
        self.nursery = _python(script, str(folder), str(gate), *self.addresses, pass_fds=(gate,))
        os.close(gate)

    def start_service(self) -> subprocess.Popen[bytes]:
        options = ["--expected-replicas=3", f"--heartbeat-limit-s={self.heartbeat_limit_s}"]
        return _python("-m", "danaus.quorum.service", f"--run={self.folder}", *options)

    def start(self, name: str, incarnation: int = 0) -> None:
        assert self.nursery.stdin is not None
        self.lines[name] = []
        self.nursery.stdin.write(f"{name} {incarnation}\n".encode())
        self.nursery.stdin.flush()

    def until(self, ready: Callable[[], bool]) -> None:
        """Read what replicas say until ``ready()``."""
        deadline = Deadline.after(LIMIT_S)
        assert self.nursery.stdout is not None
        while not ready():
            if not select.select([self.nursery.stdout], [], [], deadline.remaining_s())[0]:
                last = {name: lines[-1:] for name, lines in self.lines.items()}
                raise AssertionError(f"nothing said for long; last: {last}")
            self._text += os.read(self.nursery.stdout.fileno(), 65536)
            *lines, self._text = self._text.split(b"\n")
            for line in lines:
                name, _, said = line.decode().partition(" ")
                self.lines[name].append(said)

    def all_say(self, text: str, *names: str) -> None:
        self.until(lambda: all(text in self.lines[name] for name in names))

    def said(self, name: str, start: str) -> str:
        self.until(lambda: any(line.startswith(start) for line in self.lines[name]))
        return next(line for line in self.lines[name] if line.startswith(start))

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(int(self.said(name, "pid").split()[1]), number)

    def open_gate(self) -> None:
        os.close(self._gate)
        self._gate = -1

    def journal(self, event: str) -> list[dict[str, object]]:
        return [line for line in read(self.folder / "journal.jsonl") if line["event"] == event]

    def close(self) -> None:
        if self._gate >= 0:
            self.open_gate()
        for process in (self.nursery, self.service):
            _end(process)


def _python(*command: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        pass_fds=pass_fds, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process by the end of its input, and those that it has forked."""
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    process.wait(LIMIT_S)


@pytest.fixture
def run(tmp_path):
    started = Run(tmp_path / "run")
    yield started
    started.close()


def num_bytes_of_state() -> int:
    model = network()
    state = PlainWork(model, optimizer_of(model)).state()
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def begin(run: Run) -> None:
    for name in "abc":
        run.start(name)
    run.all_say(f"step {HOLD} by 3", *"abc")


def end_with_the_bits_of_a_plain_loop(run: Run) -> None:
    run.all_say(f"step {PLAN.num_steps} by 3", *"abc")
    run.all_say(f"bits {plain_bits()}", *"abc")
    computed = Counter[int]()
    for lines in run.lines.values():
        for step, count in (line.split()[1:] for line in lines if line.startswith("computed")):
            computed[int(step)] += int(count)
    # What the killed one had done until then is not among the lines of its second life.
    assert {computed[step] for step in range(HOLD + 1, PLAN.num_steps + 1)} == {PLAN.num_leaves}


def test_a_killed_replica_is_gone_a_second_later_and_learns_when_it_is_back(run):
    begin(run)
    run.signal("b", signal.SIGKILL)
    run.open_gate()
    run.all_say(f"step {HOLD + 1} by 2", "a", "c")
    run.start("b", incarnation=1)
    assert int(run.said("b", "learned").split()[2]) == num_bytes_of_state()
    end_with_the_bits_of_a_plain_loop(run)
    (fence,) = run.journal("quorum_fenced")
    assert "its connection closed " in str(fence["reason"])


def test_the_service_dies_a_replica_hangs_and_both_come_back(run):
    begin(run)
    run.service.kill()
    _end(run.service)
    run.signal("b", signal.SIGSTOP)
    run.service = run.start_service()
    run.open_gate()
    run.all_say(f"step {HOLD + 1} by 2", "a", "c")
    run.signal("b", signal.SIGCONT)
    run.said("b", "learned")
    end_with_the_bits_of_a_plain_loop(run)
    (epoch,) = {line["epoch"] for line in run.journal("quorum_announced") if line["finished"]}
    assert str(epoch).startswith("1."), "the service kept its disk, so no new term began"
