"""Real hosts on this machine for one test, and what became of its processes.

Owns ``Hosts``: a ``LocalJob`` whose failures that nobody handled are collected instead of ending
the test, and the ends of processes waited for by their descriptors.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Self

import cloudpickle

from danaus.actor.failure import MeshFailure
from danaus.actor.here import shutdown_context
from danaus.actor.mesh import HostMesh
from danaus.actor.pid_registry import PidRegistry
from danaus.actor.procfs import read_stat
from danaus.core.clock import Deadline
from danaus.core.process_descriptor import open_process, signal_process
from danaus.job.local import LocalJob
from danaus.wire.address import Address

_LIMIT_S = 20.0


class Watched:
    """A process by its descriptor: known even when its pid is another's by then."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = open_process(pid)

    def ends_within(self, limit_s: float) -> bool:
        """Wait for the end; tell whether it came."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(limit_s * 1000))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        signal_process(self._fd, self.pid, number)

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._fd)


class Hosts:
    """A job of ``num_hosts`` hosts for the time of a ``with`` block.

    Args:
        num_hosts: How many.
        run_dir: The run's folder.
        module: The test's module, whose classes the workers cannot import: they go by value.
        preload: As of ``LocalJob``.
        bind: As of ``LocalJob``.
    """

    def __init__(
        self,
        num_hosts: int,
        run_dir: Path,
        *,
        module: ModuleType | None = None,
        preload: tuple[str, ...] = (),
        bind: Address | None = None,
    ) -> None:
        self.job = LocalJob(num_hosts, run_dir=run_dir, preload=preload)
        self.job.bind = bind
        self.run_dir = run_dir
        self._module = module
        self._failures: queue.Queue[MeshFailure] = queue.Queue()
        self._watched: list[Watched] = []

    def __enter__(self) -> Self:
        if self._module is not None:
            cloudpickle.register_pickle_by_value(self._module)
        vars(sys.modules["danaus.actor"])["unhandled_fault_hook"] = self._failures.put
        self.job.apply()
        return self

    def __exit__(self, *_: object) -> None:
        self.job.kill()
        shutdown_context()
        for watched in self._watched:
            watched.close()
        vars(sys.modules["danaus.actor"]).pop("unhandled_fault_hook", None)
        if self._module is not None:
            cloudpickle.unregister_pickle_by_value(self._module)

    @property
    def hosts(self) -> HostMesh:
        """The hosts."""
        return self.job.state().hosts

    def host(self, number: int) -> HostMesh:
        """Return one of them, without axes."""
        return self.hosts.slice(hosts=number)

    def failure(self, limit_s: float = _LIMIT_S) -> MeshFailure:
        """Return the next failure that nobody handled; raises ``queue.Empty`` after the limit."""
        return self._failures.get(timeout=limit_s)

    @property
    def has_failed(self) -> bool:
        """Tell whether a failure waits to be looked at."""
        return not self._failures.empty()

    def watch(self, pid: int) -> Watched:
        """Return a process of the job, to wait for its end."""
        watched = Watched(pid)
        self._watched.append(watched)
        return watched

    def nursery_pid(self, host: int) -> int:
        """Return the pid of a host's nursery."""
        return self.registered(f"host{host}")["nursery"]

    def registered(self, host: str) -> dict[str, int]:
        """Return the pids in the registry of a host's agent, by name."""
        folder = self.run_dir / "control" / "agents" / host
        return {name: pid for name, (pid, _) in PidRegistry(folder).read().items()}

    def log(self, name: str) -> str:
        """Return what a process has written: ``agent-host0``, ``host0-a-0#0``."""
        return (self.run_dir / "logs" / f"{name}.log").read_text()


def wait_for_state(pid: int, states: str, limit_s: float = _LIMIT_S) -> bool:
    """Wait until the kernel says that a process is in one of ``states`` (as in ``T``)."""
    deadline = Deadline.after(limit_s)
    while not deadline.passed:
        stat = read_stat(pid)
        if stat is None or stat.state in states:
            return stat is not None
        os.sched_yield()
    return False
