"""Real faults for a run that this process launched: signals to its processes.

Owns ``FaultScript``: each fault is written to the run's journal before it strikes.
"""

from __future__ import annotations

import contextlib
import os
import signal

from danaus.app.events import SERVICE, Event, FaultKind
from danaus.app.launch import Launched
from danaus.app.replica_keeper import Start
from danaus.core.journal import Journal

_KINDS = {signal.SIGKILL: FaultKind.KILL, signal.SIGSTOP: FaultKind.HANG}
_WORDS = {
    signal.SIGKILL: "kill -9 a worker of {}",
    signal.SIGSTOP: "kill -STOP a worker of {}: it hangs",
}


class FaultScript:
    """Strike a run.

    Args:
        run: What to strike.
        journal: The run's journal.
    """

    def __init__(self, run: Launched, journal: Journal) -> None:
        self._run, self._journal = run, journal
        self._number = 0
        self._struck: dict[str, int] = {}

    def start_of(self, replica_id: str) -> Start:
        """Return the newest start of a replica."""
        return self._run.status().replicas[replica_id]

    def settled(self) -> bool:
        """Tell whether every replica that was struck has been started again."""
        replicas = self._run.status().replicas
        return all(
            replicas[name].incarnation > incarnation for name, incarnation in self._struck.items()
        )

    def signal_worker(self, replica_id: str, number: signal.Signals) -> None:
        """SIGKILL or SIGSTOP the first worker of a replica."""
        start = self.start_of(replica_id)
        self._struck[replica_id] = start.incarnation
        self._record(
            _KINDS[number],
            replica_id,
            start.pids[0],
            text=_WORDS[number].format(replica_id),
            incarnation=start.incarnation,
        )
        _strike(start.pids[0], number)

    def kill_service(self, *, away_s: float) -> None:
        """SIGKILL the quorum service and keep it away for so many seconds."""
        pid = self._run.status().service_pid
        if pid is None:
            return
        self._run.hold_service(away_s)
        self._record(FaultKind.KILL_COORDINATOR, SERVICE, pid, text="kill -9 the quorum service")
        _strike(pid, signal.SIGKILL)

    def suggest(self, replica_id: str) -> None:
        """Invite whoever watches to strike for themselves."""
        pid = self.start_of(replica_id).pids[0]
        self._journal.record(
            Event.SUGGESTION,
            text=f"now try: kill -9 {pid}   (in another terminal; a worker of {replica_id})",
            pid=pid,
            replica=replica_id,
        )

    def _record(
        self,
        kind: FaultKind,
        target: str,
        pid: int,
        *,
        text: str,
        incarnation: int | None = None,
    ) -> None:
        self._number += 1
        self._journal.record(
            Event.FAULT_INJECTED,
            fault=f"fault-{self._number}",
            kind=kind,
            target=target,
            pid=pid,
            incarnation=incarnation,
            text=text,
        )


def _strike(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it died by itself just now
        os.kill(pid, number)
