"""A run while it goes on, as its files show it: what tests wait for instead of sleeping.

Owns ``RunWatch``.  Everything is read from the run folder, so that it tells of a run whose
controller is another process, or is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from danaus.actor.pid_registry import PidRegistry
from danaus.app.run_folder import RunFolder
from danaus.core import journal
from danaus.core.clock import Deadline
from danaus.core.errors import DeadlinePassed

T = TypeVar("T")
_LOOK_S = 0.02
_never = threading.Event()


class RunWatch:
    """Look at a run.

    Args:
        folder: The run's.
        ended: Tells whether the run has ended, so that nothing more will come.
    """

    def __init__(self, folder: RunFolder, ended: Callable[[], bool] = lambda: False) -> None:
        self.folder = folder
        self._ended = ended

    def until(self, what: str, look: Callable[[], T], limit_s: float = 20.0) -> T:
        """Look until what is seen is true; return it.

        Raises:
            DeadlinePassed: It did not come; says what the run wrote last.
        """
        deadline = Deadline.after(limit_s)
        while not (seen := look()):
            if deadline.passed or (self._ended() and not look()):
                last = "; ".join(str(line) for line in journal.read(self.folder.journal_path)[-5:])
                raise DeadlinePassed(f"{what} (the journal ends: {last})", limit_s)
            _never.wait(_LOOK_S)
        return seen

    def events(self, name: str, **facts: object) -> list[dict[str, Any]]:
        """Return the journal's lines of an event with these facts."""
        return [
            line
            for line in journal.read(self.folder.journal_path)
            if line["event"] == name and all(line.get(k) == v for k, v in facts.items())
        ]

    @property
    def step(self) -> int:
        """The newest committed step that a replica has written down."""
        lines = [journal.read(path) for path in (self.folder.path / "metrics").glob("*.jsonl")]
        return max((line["step"] for each in lines for line in each), default=0)

    @property
    def num_members(self) -> int:
        """Replicas that took part in the newest committed step."""
        lines = [journal.read(path) for path in (self.folder.path / "metrics").glob("*.jsonl")]
        newest = max(
            (each[-1] for each in lines if each), key=lambda line: line["step"], default={}
        )
        return int(newest.get("num_replicas", 0))

    def until_step(self, step: int, limit_s: float = 20.0) -> int:
        """Wait until a step is committed; return the newest."""
        return self.until(f"step {step}", lambda: self.step if self.step >= step else 0, limit_s)

    def until_moved(self, num_steps: int = 2, limit_s: float = 20.0) -> int:
        """Wait until some more steps are committed than are now; return the newest."""
        return self.until_step(self.step + num_steps, limit_s)

    def until_members(self, num_replicas: int, limit_s: float = 30.0) -> None:
        """Wait until a step is committed by so many replicas."""
        self.until(f"{num_replicas} members", lambda: self.num_members == num_replicas, limit_s)

    def pids(self, host: int) -> dict[str, int]:
        """Return the living processes of a host by name: ``agent``, ``nursery``, its workers."""
        folder = self.folder.control / "agents" / f"host{host}"
        return {name: pid for name, (pid, _) in PidRegistry(folder).read().items()}

    def service_pid(self) -> int:
        """Return the pid of the quorum service that was started last."""
        return int(self.folder.addresses().get("quorum_pid", 0))

    def strikes(self) -> list[dict[str, Any]]:
        """Return the faults that were made on purpose, in order."""
        return self.events("fault_injected")

    def deaths(self) -> set[tuple[str, int]]:
        """Return who was ended by SIGKILL and not by the controller: replica and incarnation."""
        return {
            (line["replica"], line["incarnation"])
            for line in self.events("process_exited", expected=False)
            if line["signal"] == "SIGKILL"
        }
