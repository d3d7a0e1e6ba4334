"""How a run goes on, as its metrics tell: its step, and whether every replica takes part.

Owns ``RunView``.  It reads files, so that it tells of a run whose controller is another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from danaus.app.events import Event
from danaus.app.line_tail import LineTail
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import happening
from danaus.core.clock import time_of_day

_APART_STEPS = 2
"""How far the files of two replicas that train together may be apart."""
_BACK_STEPS = 3
"""So many steps a replica commits after a fault before it counts as back: one was under way."""


def started_at(folder: RunFolder) -> float:
    """Return when the run was started or resumed last: what was committed before may be undone."""
    told = (happening(line) for line in LineTail(folder.journal_path).new_lines())
    return max((e.time for e in told if e is not None and e.name == Event.RUN_STARTED), default=0.0)


class RunView:
    """Look at a run.

    Args:
        folder: The run's.
        replica_ids: Its replicas.
        since: What was written before, in seconds since 1970, tells nothing.
    """

    def __init__(
        self, folder: RunFolder, replica_ids: Sequence[str], *, since: float = 0.0
    ) -> None:
        self._folder = folder
        self._tails: dict[str, LineTail] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._since = since
        self._marked_at = 0.0
        self._num_after: dict[str, int] = {}
        self.follow(replica_ids)

    def follow(self, replica_ids: Sequence[str]) -> None:
        """These are the run's replicas from now on: it was scaled, or one was drained."""
        for name in self._tails.keys() - set(replica_ids):
            del self._tails[name], self._num_after[name]
            self._last.pop(name, None)
        for name in replica_ids:
            if name not in self._tails:
                self._tails[name] = LineTail(self._folder.metrics_path(name))
                self._num_after[name] = _BACK_STEPS

    def look(self) -> None:
        """Read what is new."""
        for name, tail in self._tails.items():
            lines = [line for line in tail.new_lines() if line.get("at", 0.0) >= self._since]
            self._num_after[name] += sum(line["at"] > self._marked_at for line in lines)
            if lines:
                self._last[name] = lines[-1]

    def mark(self) -> None:
        """A fault strikes now: only what comes after it tells that all are back."""
        self._marked_at = time_of_day()
        self._num_after = dict.fromkeys(self._num_after, 0)

    @property
    def has_begun(self) -> bool:
        """Tell whether a step was committed."""
        return bool(self._last)

    @property
    def step(self) -> int:
        """The step that was committed last; it falls where the run goes back to a checkpoint."""
        newest = max(self._last.values(), key=lambda line: line.get("at", 0.0), default={})
        return int(newest.get("step", 0))

    @property
    def all_members(self) -> bool:
        """Tell whether every replica took part in the last steps, and in some since the mark."""
        if len(self._last) < len(self._tails) or min(self._num_after.values()) < _BACK_STEPS:
            return False
        return all(
            line.get("num_replicas") == len(self._tails)
            and self.step - line.get("step", 0) <= _APART_STEPS
            for line in self._last.values()
        )
