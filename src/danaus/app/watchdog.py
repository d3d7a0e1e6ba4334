"""The watchdog of a detached run: a small process that starts its controller again (P-4).

``python -m danaus.app.watchdog RUN``, started by the run's controller.  It waits for the
controller's end and reads from the journal whether the run is over; if not, it starts
``app.headless``, which adopts what lives (A-12).  A controller kills it before the run ends; one
that finds it gone starts another (``watchdog_keeper``).

Invariants:
    P-4: it starts nothing while a controller holds the run's folder, nothing once the run is over,
    and no more often than the run's restarts allow (OTP's words), whoever watches: what was used of
    them is on the disk before a controller is started.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from danaus.actor import procfs
from danaus.actor.boot import command
from danaus.actor.restart import Restart, RestartBudget
from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.app.run_lock import RunLock, found_holder
from danaus.app.settings import as_it_runs
from danaus.core import journal
from danaus.core.clock import Deadline
from danaus.core.errors import DanausError, RunFolderBusy
from danaus.core.journal import Journal
from danaus.core.whole_file import WholeFile

WATCHDOG_LOCK = "watchdog.lock"
"""In the run folder's ``control``: held by the living watchdog, which it names."""
_USED = "watchdog.json"
"""Beside it: when a controller was started again that may still count."""
_BEGIN_LIMIT_S = 60.0
_LOOK_S = 0.05
_SLICE_S = 60.0
_PAUSE_S = 0.3
"""Who has just ended a controller by hand has so long to take its place."""


class Watchdog:
    """Watch one run.

    Args:
        folder: The run's.
        budget: How often its controller is started again.
        journal: Where that is written down.
    """

    def __init__(self, folder: RunFolder, budget: RestartBudget, journal: Journal) -> None:
        self._folder, self._budget, self._journal = folder, budget, journal
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Watch until the run is over, or its controller ends too often."""
        while self._folder.is_there():
            how = self._until_gone()
            # Who removes the folder wants nothing of the run any more.
            if not self._folder.is_there():
                return
            if is_over(journal.read(self._folder.journal_path)):
                return
            time.sleep(_PAUSE_S)
            if RunLock(self._folder.path).is_free and not self._start_again(how):
                return

    def _until_gone(self) -> str:
        """Wait until no controller lives; return what is known of the end of the last one."""
        controller = found_holder(self._folder.path)
        if controller is None:
            return "no controller is alive" + (f": {self._reaped()}" if self._child else "")
        try:
            while not controller.ends_within(_SLICE_S) and self._folder.is_there():
                pass
        finally:
            controller.close()
        ended = f"the controller (pid {controller.pid}) has ended"
        is_child = self._child is not None and self._child.pid == controller.pid
        return f"{ended}: {self._reaped()}" if is_child else ended

    def _reaped(self) -> str:
        child, self._child = self._child, None
        code = child.wait(_BEGIN_LIMIT_S) if child is not None else 0
        return procfs.how_ended(code)

    def _start_again(self, how: str) -> bool:
        decision = self._budget.decide((0,), 1, time.monotonic())
        if not decision.restart:
            to_do = f"danaus train --resume {self._folder.path}"
            reason = f"{how}; {decision.reason}; go on by hand: {to_do}"
            self._journal.record(Event.WATCHDOG_GAVE_UP, reason=reason)
            return False
        time.sleep(decision.after_s)
        with self._folder.log_path("controller").open("ab") as log:
            self._child = subprocess.Popen(
                command("danaus.app.headless", os.fspath(self._folder.path)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._journal.record(
            Event.CONTROLLER_RESTARTED,
            pid=self._child.pid,
            reason=f"{how}; {decision.reason}",
        )
        self._until_it_holds(self._child)
        return True

    def _until_it_holds(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until a controller holds the folder, or has ended, or takes too long."""
        lock, deadline = RunLock(self._folder.path), Deadline.after(_BEGIN_LIMIT_S)
        while lock.holder()[0] != child.pid and child.poll() is None:
            if deadline.passed:
                child.kill()
            time.sleep(_LOOK_S)


def is_over(lines: Iterable[Mapping[str, Any]]) -> bool:
    """Tell from a run's journal whether it has come to an end, rather than lost its controller."""
    over = False
    for line in lines:
        if line.get("event") in (Event.RUN_STARTED, Event.RUN_ADOPTED):
            over = False
        elif line.get("event") in (Event.RUN_FINISHED, Event.RUN_FAILED, Event.RUN_STOPPED):
            over = True
    return over


def main() -> None:
    """Watch the run whose folder the only argument names; exit code 2 if that cannot be."""
    try:
        folder = RunFolder.open(Path(sys.argv[1]))
        policy = as_it_runs(folder).restart.policy()
        RunLock(folder.path, WATCHDOG_LOCK).hold()
    except RunFolderBusy:
        return  # there is one
    except DanausError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    with Journal(folder.journal_path) as record:
        Watchdog(folder, budget_of(folder, policy), record).run()


def budget_of(folder: RunFolder, policy: Restart) -> RestartBudget:
    """Return what is left of the restarts, whichever watchdog has used the others."""
    file = WholeFile(folder.control / _USED)

    def write(past: tuple[float, ...]) -> None:
        with contextlib.suppress(OSError):  # without room a run is better watched than counted
            file.write(msgspec.json.encode(past))

    try:
        past = msgspec.json.decode(file.read(), type=list[float])
    except (OSError, msgspec.DecodeError):  # the first watchdog, or somebody else's file
        past = []
    now = time.monotonic()  # begins anew with the machine: what lies ahead counts as of now
    return RestartBudget(policy, [min(each, now) for each in past], on_use=write)


if __name__ == "__main__":
    main()
