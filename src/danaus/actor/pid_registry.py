"""Which processes a host agent has started, on disk, so that the next one finds what is left.

A process is named by its pid and its start time: a pid alone may mean another process by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from pathlib import Path

from danaus.actor import procfs
from danaus.core.clock import Deadline
from danaus.core.process_descriptor import open_process
from danaus.core.whole_file import WholeFile


class PidRegistry:
    """The file ``pids.json`` in an agent's folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # What matters is the death of a process, not of the machine.
        self._file = WholeFile(Path(folder) / "pids.json", durable=False)
        self._known: dict[str, tuple[int, int]] = {}

    def add(self, name: str, pid: int, started: int) -> None:
        """Note a process before anything depends on it."""
        self._known[name] = (pid, started)
        self._write()

    def drop(self, name: str) -> None:
        """Forget a process that has ended."""
        if self._known.pop(name, None) is not None:
            self._write()

    def read(self) -> dict[str, tuple[int, int]]:
        """Return what the file names: pid and start time by name; empty if there is none."""
        try:
            found = json.loads(self._file.read())
            return {str(name): (int(pid), int(started)) for name, (pid, started) in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def clear_leftovers(self, limit_s: float) -> list[str]:
        """SIGKILL every process that an earlier agent left, and wait until they are gone.

        Args:
            limit_s: How long to wait for all of them, in seconds.

        Returns:
            The names of those that were alive.
        """
        waiting: dict[int, str] = {}
        try:
            for name, (pid, started) in self.read().items():
                if procfs.kill_exactly(pid, started):
                    try:
                        waiting[open_process(pid)] = name
                    except OSError:
                        continue
            _wait_for_all(list(waiting), limit_s)
        finally:
            for fd in waiting:
                os.close(fd)
        self._write()
        return sorted(waiting.values())

    def _write(self) -> None:
        # A disk that fails must not stop the agent; the lifeline ends workers all the same.
        with contextlib.suppress(OSError):
            self._file.write(json.dumps(self._known).encode())


def _wait_for_all(descriptors: list[int], limit_s: float) -> None:
    deadline = Deadline.after(limit_s)
    poll = select.poll()
    left = set(descriptors)
    for fd in left:
        poll.register(fd, select.POLLIN)
    while left and not deadline.passed:
        for fd, _ in poll.poll(deadline.remaining_s() * 1000):
            poll.unregister(fd)
            left.discard(fd)
