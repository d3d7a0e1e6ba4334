"""Runs over a lab's hosts, and what each must come to, whatever is done to its networks."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from danaus.actor import procfs
from danaus.app.events import Event
from danaus.app.lab import host_agent
from danaus.app.run_result import RunResult
from danaus.cli.main import main
from danaus.ft.ledger import Committed
from danaus.ft.lineage import merge
from danaus.testing.faults import Pace
from danaus.testing.lab import Lab
from danaus.testing.runs import Running, Shape, running, small_run
from danaus.testing.watching import RunWatch

STEP_S = 0.2
FULL_LIMIT_S = 90.0


class LabRun:
    """A run over the hosts of a lab, one replica on each, that takes its time.

    Args:
        lab: The lab.
        going: The run.
        pace: The file that lets it go fast.
    """

    def __init__(self, lab: Lab, going: Running, pace: Path) -> None:
        self.lab, self.going, self._pace = lab, going, pace
        self.watch: RunWatch = going.watch

    def full(self) -> None:
        """Wait until every replica takes part."""
        self.watch.until_members(len(self.lab.hosts), limit_s=FULL_LIMIT_S)

    def finish(self) -> RunResult:
        """Let it run to its end, and check its ledgers."""
        self._pace.touch()
        result = self.going.result(120)
        check_ledgers(self.going.run.folder.path)
        return result

    def said(self, event: str, **facts: object) -> list[str]:
        """Return the reasons of an event, in order."""
        return [str(line.get("reason", "")) for line in self.watch.events(event, **facts)]

    def log(self, replica: int) -> str:
        """Return what the workers of a replica wrote."""
        logs = self.going.run.folder.path.rglob(f"*replica-{replica}*.log")
        return "".join(path.read_text(errors="replace") for path in logs)


@contextlib.contextmanager
def lab_run(path: Path, hosts: int, *, steps: int = 200, **more: object) -> Iterator[LabRun]:
    """Start a run over a lab of so many hosts."""
    with Lab(hosts=hosts, folder=path / "labs", agent=host_agent()) as lab:
        listening = tuple(lab.plan.listening(host) for host in lab.hosts)
        with run_over(lab, path, listening, steps=steps, **more) as run:
            yield run


@contextlib.contextmanager
def run_over(
    lab: Lab, path: Path, listening: tuple[str, ...], *, steps: int, ranks: int = 1, **more: object
) -> Iterator[LabRun]:
    """Start a run over hosts that listen at these addresses, with so many ranks on each."""
    pace = Pace(STEP_S, until=path / "fast")
    run = small_run(
        path / "run",
        Shape(replicas=len(listening), ranks=ranks, leaves=len(listening), steps=steps),
        observers={f"replica-{n}": (pace,) for n in range(len(listening))},
        hosts=listening,
        secret=lab.secret_path,
        **more,
    )
    with running(run) as going:
        yield LabRun(lab, going, path / "fast")


def check_ledgers(run: Path) -> None:
    """See that no sample is lost or repeated, and that no two quorums lived side by side."""
    assert main(["ledger", "verify", str(run)]) == 0
    epochs = defaultdict(set)
    for file in merge((run / "ledger").glob("*.jsonl")).files:
        for line in file.lines:
            if isinstance(line, Committed):
                epochs[line.step].add((line.epoch, line.members))
    assert sorted(epochs) == list(range(1, max(epochs) + 1))
    assert all(len(each) == 1 for each in epochs.values()), "each step was committed by one quorum"
    in_order = [min(epochs[step])[0] for step in sorted(epochs)]
    assert all(a <= b for a, b in itertools.pairwise(in_order)), "one quorum after the other"


def processes_of(lab: Lab, host: str) -> list[int]:
    """Return all processes of a host but its first, which holds it together."""
    first = lab.pid(host)
    assert first is not None
    inside = os.readlink(f"/proc/{first}/ns/pid")
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == inside:
                found.append(int(entry.name))
    return sorted(pid for pid in found if pid != first)


def pid_here(run: LabRun, node: str, event: Event, /, **facts: object) -> int:
    """Return the pid, as seen from here, of the process of a host that an event told of last."""
    line = run.watch.events(event, **facts)[-1]
    first = run.lab.pid(node)
    assert first is not None
    pid = procfs.pid_here(line.get("agent_pid") or line["pid"], first)
    assert pid is not None
    return pid
