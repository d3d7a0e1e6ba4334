"""Keeps the watchdog of a detached run alive, as the watchdog keeps the controller (P-4).

Owns ``WatchdogKeeper``.  A watchdog that an earlier controller has started is taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

from danaus.actor import procfs
from danaus.actor.boot import command
from danaus.actor.restart import RestartBudget
from danaus.app.events import Event
from danaus.app.found_child import Child, FoundChild
from danaus.app.run_folder import RunFolder
from danaus.app.run_lock import RunLock
from danaus.app.settings import RunConfig
from danaus.app.watchdog import WATCHDOG_LOCK
from danaus.core.journal import Journal

_END_LIMIT_S = 2.0


class WatchdogKeeper:
    """Run the watchdog of one run, if it is to have one.

    Args:
        folder: The run's folder, held by this process.
        config: Whether there is to be one, and how often it is started again.
        journal: Where starts and exits are written.
    """

    def __init__(self, folder: RunFolder, config: RunConfig, journal: Journal) -> None:
        self._folder, self._journal = folder, journal
        self._wanted = config.detached and config.watchdog
        self._budget = RestartBudget(config.restart.policy())
        self._lock = RunLock(folder.path, WATCHDOG_LOCK)
        self._process: Child | None = None
        self._dismissed = asyncio.Event()

    async def run(self) -> None:
        """Keep it alive until ``dismiss``; a run goes on without one that ends too often."""
        found = self._find()
        if not self._wanted:
            _end(found)
            return
        while not self._dismissed.is_set():
            try:
                process: Child = found or await self._start()
            except OSError as error:  # no memory, a full disk: there may be room again
                how = f"it cannot be started: {error.strerror or error}"
            else:
                found = None
                how = await self._see_through(process)
            if self._dismissed.is_set():
                return
            decision = self._budget.decide((0,), 1, time.monotonic())
            words = how if decision.restart else f"{how}; {decision.reason}: there is none now"
            self._journal.record(Event.WATCHDOG_EXITED, reason=words)
            if not decision.restart:
                return
            await asyncio.sleep(decision.after_s)

    def dismiss(self) -> None:
        """End it: the run is about to end."""
        self._dismissed.set()
        _end(self._process)

    async def _see_through(self, process: Child) -> str:
        self._process = process
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            _end(process)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END_LIMIT_S)
            raise
        finally:
            if isinstance(process, FoundChild):
                process.close()
        return "it has ended" if code is None else f"it has ended: {procfs.how_ended(code)}"

    def _find(self) -> FoundChild | None:
        """Return the living watchdog of this run; one that is stopped would watch nothing."""
        pid, started = self._lock.holder()
        stat = procfs.read_stat(pid) if pid else None
        if stat is not None and stat.started == started and stat.is_stopped:
            procfs.kill_exactly(pid, started)
            return None
        return FoundChild.find(pid, started)

    async def _start(self) -> asyncio.subprocess.Process:
        with self._folder.log_path("watchdog").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command("danaus.app.watchdog", os.fspath(self._folder.path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._journal.record(Event.WATCHDOG_STARTED, pid=process.pid)
        if self._dismissed.is_set():
            _end(process)
        return process


def _end(process: Child | None) -> None:
    """Kill it: it has nothing to clean up, and one that is stopped would not hear of a wish."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
