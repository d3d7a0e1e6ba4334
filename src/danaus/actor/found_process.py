"""A process of ours that another program has started, known by its descriptor.

Owns ``FoundProcess``, which answers as far as it can to what a ``subprocess.Popen`` does: an
adopted agent or service is handled like one that was started here.  How it ended only its parent
is told.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess

from danaus.actor.procfs import open_exactly
from danaus.core.process_descriptor import signal_process


class FoundProcess:
    """A living process of this machine; see ``find``.

    Args:
        pid: Its pid.
        descriptor: A descriptor of it, which this object closes.
    """

    returncode: int | None = None

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    @classmethod
    def find(cls, pid: int, started: int) -> FoundProcess | None:
        """Return the process that has this pid and start time, None if it does not live."""
        descriptor = open_exactly(pid, started) if pid > 0 else None
        return cls(pid, descriptor) if descriptor is not None else None

    @property
    def has_ended(self) -> bool:
        """Tell whether it has."""
        return self.ends_within(0.0)

    def duplicate(self) -> int:
        """Return a descriptor of it that the caller closes; readable once it has ended."""
        return os.dup(self._descriptor)

    def poll(self) -> int | None:
        """Return None while it lives; how it ended is not known here, which reads as 0."""
        return 0 if self.has_ended else None

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns as ``poll`` does.

        Raises:
            TimeoutExpired: It lives on after ``timeout`` seconds.
        """
        if not self.ends_within(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return 0

    def kill(self) -> None:
        """SIGKILL it."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM it."""
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _signal(self, number: signal.Signals) -> None:
        if self._descriptor >= 0:
            try:
                signal_process(self._descriptor, self.pid, number)
            except ProcessLookupError:
                pass

    def ends_within(self, limit_s: float) -> bool:
        """Wait for its end; tell whether it came within so many seconds."""
        if self._descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(limit_s * 1000))
