"""Runs that take their time until they are let go, and what a test asks of one as it goes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from danaus.app.events import Event
from danaus.testing.faults import Pace
from danaus.testing.runs import Running, Shape, SmallRun, small_run
from danaus.testing.watching import RunWatch

STEP_S = 0.3


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
    names = [f"replica-{n}" for n in range(shape.replicas)]
    observers = {name: (*struck.get(name, ()), pace, *also) for name in names}
    return small_run(tmp_path / "run", shape, observers=observers, **more)


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
