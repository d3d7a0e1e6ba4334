"""Machines of a run in small: ``danaus host`` on loopback addresses of its own.

Owns ``Machine``: a host that waits, all of its processes, and its ends and new beginnings.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.procs.cli.terminal import Command

from danaus.actor.pid_registry import PidRegistry
from danaus.actor.procfs import children_of
from danaus.testing.hosts import wait_for_state
from danaus.wire.secret import Secret

WAITS = r"waits to be joined at (tcp:\S+)"


class Machine:
    """One waiting host.

    Args:
        folder: Of the test; the hosts' secret lies there.
        number: Of the machine: 0 is 127.0.0.2.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.name = f"m{number}"
        self.folder, self._own = folder, folder / f"m{number}"
        self.secret = folder / "hosts-secret"
        self.address = f"tcp:127.0.0.{number + 2}:0"
        self.command: Command | None = None

    def start(self) -> Machine:
        """Start the host, at its old address if it had one; return once it listens."""
        Secret.ensure(self.secret)
        self.command = Command(
            self.folder,
            "host",
            f"--listen={self.address}",
            f"--secret={self.secret}",
            f"--run-dir={self._own}",
            f"--name={self.name}",
        )
        self.address = self.command.wait_for(WAITS)[1]
        return self

    @property
    def pids(self) -> dict[str, int]:
        """Living processes of the job that has joined: ``agent``, ``nursery``, its workers."""
        found = {}
        for folder in (self._own / "agents").glob("*"):
            found |= {name: pid for name, (pid, _) in PidRegistry(folder).read().items()}
        return found

    @property
    def family(self) -> list[int]:
        """Every process of the machine, the oldest first."""
        found = [self.command.pid]
        for pid in found:
            found += children_of(pid)
        return found

    def stop(self) -> list[int]:
        """SIGSTOP every process, as if the machine hung; return them."""
        family = self.family
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
            assert wait_for_state(pid, "T")
        return family

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the host by a signal; return its exit code."""
        self.command.signal(number)
        with self.command:
            return self.command.wait()


@contextlib.contextmanager
def machines(folder: Path, number: int) -> Iterator[tuple[Machine, ...]]:
    """Start so many machines; they are ended afterwards."""
    made = [Machine(folder, n) for n in range(number)]
    with contextlib.ExitStack() as stack:
        for machine in made:
            machine.start()
            stack.callback(lambda machine=machine: machine.command.__exit__(None, None, None))
        yield tuple(made)
