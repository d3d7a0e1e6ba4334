"""Replicas and a coordinator that a bench starts, kills and listens to.

Owns the face that both sides of the comparison have (``Fleet``), what is read from a replica's
log, and danaus's own fleet: replicas under a host agent, or as plain processes.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from danaus.actor.endpoints import Actor, endpoint
from danaus.actor.failure import MeshFailure
from danaus.actor.here import this_proc
from danaus.actor.mesh import HostMesh
from danaus.actor.procfs import ProcessStat, kill_exactly, read_stat
from danaus.app.bench_ft_job import ReplicaJob
from danaus.app.bench_processes import Program, Programs
from danaus.core.errors import ConfigError
from danaus.ft.step_plan import Bits
from danaus.job.local import LocalJob

_START_LIMIT_S = 60.0
_REPLICA = "danaus.app.bench_ft_replica"


@dataclass(frozen=True)
class Commit:
    """A committed step as one replica's log tells it."""

    time: float
    step: int
    members: int


@dataclass(frozen=True)
class Shape:
    """What every replica of a fleet does.

    Args:
        replicas: How many are there from the start.
        width: Of the three layers.
        step_s: What a step takes to compute with all replicas; waited for, as for a device.
        bits: Whether this project's sums have one order.
    """

    replicas: int
    width: int = 256
    step_s: float = 0.02
    bits: Bits = "exact"


class Fleet(Protocol):
    """Replicas by number, and their coordinator."""

    shape: Shape

    def start_coordinator(self) -> None:
        """Start it, or start it again where it was."""
        ...

    def kill_coordinator(self) -> None:
        """SIGKILL it."""
        ...

    def start(self, replica: int, *, warm: bool = True) -> None:
        """Start a replica, again if it was there before; warm: from what stands ready for it."""
        ...

    def kill(self, replica: int) -> float:
        """SIGKILL a replica; return when."""
        ...

    def hang(self, replica: int) -> float:
        """Have a replica's training thread stand still while all else in it goes on."""
        ...

    def is_alive(self, replica: int) -> bool:
        """Tell whether its process has not ended."""
        ...

    def commits(self, replica: int) -> list[Commit]:
        """Return the committed steps of its present life."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a replica's log."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def commits_in(path: Path) -> list[Commit]:
    """Return the committed steps that a replica's log tells of."""
    lines = [line for line in read_log(path) if "step" in line]
    return [Commit(line["t"], line["step"], line["members"]) for line in lines]


class _Owner(Actor):
    """Starts replicas under a host agent, and takes their deaths as they come."""

    def __init__(self, hosts: HostMesh) -> None:
        self._hosts = hosts
        self._runs: list[Any] = []

    @endpoint
    async def start(self, job: ReplicaJob) -> int:
        """Start a replica; return its process id."""
        from danaus.app.bench_ft_replica import BenchReplica

        name = f"{job.name}-{Path(job.folder).name}"
        procs = self._hosts.spawn_procs(name=name, incarnation=job.incarnation)
        self._runs.append(procs.spawn("replica", BenchReplica, job).train.call_one())
        await procs.initialized
        (pid,) = procs.pids().values()
        return pid

    def __supervise__(self, failure: MeshFailure) -> bool:
        """They are killed on purpose."""
        return True


class DanausFleet:
    """Replicas of this project.

    Args:
        shape: What they do.
        folder: Where they meet.
        job: Whose first host runs them.
    """

    _LEAVES = 12
    """Of a step: shared evenly by one to four replicas."""

    def __init__(self, shape: Shape, folder: Path, job: LocalJob) -> None:
        self.shape, self._folder = shape, folder
        self._programs = Programs(folder / "programs")
        self._owner = this_proc().spawn("owner", _Owner, job.state().hosts.slice(hosts=0))
        self._coordinator: Program | None = None
        self._lives: dict[int, int] = {}
        self._plain: dict[int, Program] = {}
        self._stats: dict[int, ProcessStat] = {}

    def start_coordinator(self) -> None:
        # As few as one may form the first quorum, so that none is waited for later on.
        number = self.shape.replicas
        words = ("--run", self._folder, "--expected-replicas", number, "--min-replicas", 1)
        self._coordinator = self._programs.start_ours(
            "danaus.quorum.service", *words, name="quorum"
        )

    def kill_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.kill()

    def start(self, replica: int, *, warm: bool = True) -> None:
        self._lives[replica] = self._lives.get(replica, -1) + 1
        job = self._job(replica)
        if warm:
            self._plain.pop(replica, None)
            pid = self._owner.start.call_one(job).get(timeout=_START_LIMIT_S)
            self._remember(replica, pid)
            return
        words = json.dumps(dataclasses.asdict(job))
        name = f"{job.name}-{job.incarnation}"
        self._plain[replica] = self._programs.start_ours(_REPLICA, words, name=name)
        self._remember(replica, self._plain[replica].pid)

    def _remember(self, replica: int, pid: int) -> None:
        stat = read_stat(pid)
        if stat is None:
            raise ConfigError(f"replica {replica} ended at once", "a replica that trains")
        self._stats[replica] = stat

    def _job(self, replica: int) -> ReplicaJob:
        return ReplicaJob(
            folder=str(self._folder),
            log=str(self._log(replica)),
            name=f"replica-{replica}",
            incarnation=self._lives[replica],
            width=self.shape.width,
            compute_s=self.shape.step_s * self.shape.replicas / self._LEAVES,
            num_leaves=self._LEAVES,
        )

    def _log(self, replica: int) -> Path:
        return self._folder / f"steps-{replica}-{self._lives[replica]}.jsonl"

    def kill(self, replica: int) -> float:
        now = time.monotonic()
        stat = self._stats[replica]
        kill_exactly(stat.pid, stat.started)
        if replica in self._plain:
            self._plain[replica].kill()
        return now

    def hang(self, replica: int) -> float:
        (self._folder / f"hang-replica-{replica}").touch()
        return time.monotonic()

    def is_alive(self, replica: int) -> bool:
        known = self._stats[replica]
        stat = read_stat(known.pid)
        return stat is not None and stat.started == known.started and not stat.is_zombie

    def commits(self, replica: int) -> list[Commit]:
        return commits_in(self._log(replica))

    def close(self) -> None:
        for replica in self._stats:
            if self.is_alive(replica):
                self.kill(replica)
        self._programs.close()
