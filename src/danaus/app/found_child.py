"""A process of the run that an earlier controller has started, waited for on an event loop.

Owns ``FoundChild``, which answers to what is used of ``asyncio.subprocess.Process``.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from danaus.actor.found_process import FoundProcess


class Child(Protocol):
    """A process that is watched: one that was started here, or one that was found."""

    @property
    def pid(self) -> int:
        """Its pid."""

    @property
    def returncode(self) -> int | None:
        """How it ended, 0 where only its parent knows; None while it lives."""

    def kill(self) -> None:
        """SIGKILL it."""

    def terminate(self) -> None:
        """SIGTERM it."""

    async def wait(self) -> int | None:
        """Wait for its end; return how it ended, None where only its parent knows."""


class FoundChild:
    """A living process of this machine that is nobody's child here.

    Args:
        process: The process; let go of once it has ended.
    """

    def __init__(self, process: FoundProcess) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    def find(cls, pid: object, started: object) -> FoundChild | None:
        """Return the process that has this pid and start time, None if it does not live."""
        if not isinstance(pid, int) or not isinstance(started, int):
            return None
        found = FoundProcess.find(pid, started)
        return cls(found) if found is not None else None

    @property
    def returncode(self) -> int | None:
        """None while it lives; how it ended is not known, which reads as 0."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL it."""
        self._process.kill()

    def terminate(self) -> None:
        """SIGTERM it."""
        self._process.terminate()

    async def wait(self) -> None:
        """Wait for its end; how it ended is not known."""
        if self._process.has_ended:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        descriptor = self._process.duplicate()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Let go of it, whether it lives or not."""
        self._process.close()
