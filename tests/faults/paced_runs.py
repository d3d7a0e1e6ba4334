"""Runs that take their time until they are let go, and what a test asks of one as it goes."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from danaus.app.events import Event
from danaus.testing.faults import Pace
from danaus.testing.runs import Running, Shape, SmallRun, running, small_run
from danaus.testing.watching import RunWatch

STEP_S = 0.3
_MOST_REPLICAS = 8
"""Those that a run is scaled to take their time too."""


def paced_run(
    tmp_path: Path,
    shape: Shape,
    *,
    step_s: float = STEP_S,
    struck: dict[str, Any] | None = None,
    also: tuple[Any, ...] = (),
    **more: Any,
) -> SmallRun:
    """Return a run whose steps take their time until the file ``fast`` is there.

    Args:
        tmp_path: Of the test.
        shape: How large it is.
        step_s: How long a step takes at least.
        struck: Observers that come first, by replica.
        also: Observers of all replicas that come last.
        more: Further fields of its configuration.
    """
    pace, struck = Pace(step_s, until=tmp_path / "fast"), struck or {}
    names = [f"replica-{n}" for n in range(_MOST_REPLICAS)]
    observers = {name: (*struck.get(name, ()), pace, *also) for name in names}
    return small_run(tmp_path / "run", shape, observers=observers, **more)


@contextlib.contextmanager
def at_full_strength(run: SmallRun, tmp_path: Path, sha256: str) -> Iterator[RunWatch]:
    """Start a run and give its watch once all take part; then let it go to its end.

    Args:
        run: What.
        tmp_path: Of the test.
        sha256: What its state must come to.
    """
    with running(run) as going:
        going.watch.until_members(run.config.replicas, limit_s=90)
        yield going.watch
        assert finished(going, tmp_path) == sha256


def finished(going: Running, tmp_path: Path) -> str:
    """Let a run go to its end; return the hash of its state."""
    (tmp_path / "fast").touch()
    return going.result(120).sha256


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a controller; return once it is gone."""
    process.kill()
    process.wait(10)


def adopted(watch: RunWatch, times: int = 1) -> dict[str, Any]:
    """Wait until a controller has adopted the run; return what it wrote down."""
    lines = watch.until(
        f"adoption {times}",
        lambda: found if len(found := watch.events(Event.RUN_ADOPTED)) >= times else [],
        limit_s=60,
    )
    return lines[-1]


def workers(watch: RunWatch, hosts: int) -> dict[str, int]:
    """Return the pids of all workers on so many hosts, by process id."""
    found = [watch.pids(host).items() for host in range(hosts)]
    return {name: pid for pids in found for name, pid in pids if "/" in name}


def pid_of(watch: RunWatch, replica: int, rank: int) -> int:
    """Return the process that was started last as a rank."""
    started = watch.events(Event.PROCESS_STARTED, replica=f"replica-{replica}", rank=rank)
    return int(started[-1]["pid"])


def back(watch: RunWatch, replica: int, incarnation: int) -> None:
    """Wait until a replica takes part again under an incarnation."""
    of = f"replica-{replica}/0#{incarnation}"
    watch.until(
        f"{of} to be a member",
        lambda: any(of in line["members"] for line in watch.events(Event.QUORUM_ANNOUNCED)),
        limit_s=60,
    )


def repairs(watch: RunWatch, replica: int) -> list[tuple[int, list[int]]]:
    """Return which ranks of a replica were repaired, and which processes lived on."""
    lines = watch.events(Event.RANK_REPAIRED, replica=f"replica-{replica}")
    return [(line["rank"], line["kept"]) for line in lines]


def worker(watch: RunWatch, host: int) -> int:
    """Return the pid of a host's first worker."""
    return next(pid for name, pid in watch.pids(host).items() if "/" in name)


def nothing_is_lost(watch: RunWatch) -> None:
    """See that nobody was waited for in vain, and no step was taken twice."""
    losses = (Event.STEP_DISCARDED, "quorum_aborted", "quorum_fenced", Event.RUN_RESUMED)
    found = [line for loss in losses for line in watch.events(loss)]
    assert not found, found


def has_left(
    watch: RunWatch, replica: str, incarnation: int = 0, num_ranks: int = 1
) -> dict[str, Any]:
    """Wait until a replica has left and ended by itself; return the line that says it left."""

    def ended() -> Sequence[dict[str, Any]]:
        lines = watch.events(Event.PROCESS_EXITED, replica=replica, incarnation=incarnation)
        return lines if len(lines) == num_ranks else ()

    for line in watch.until(f"the end of {replica}", ended):
        assert (line["exit_code"], line["expected"]) == (0, True), line
    return watch.events(Event.REPLICA_LEFT, replica=replica, incarnation=incarnation)[-1]
