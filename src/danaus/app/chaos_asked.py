"""What became of the faults that victims were asked to strike themselves with: the journal tells.

Owns ``Asked``.  A victim that takes such a fault on waits for its moment, and may find that it
cannot be done there; only what it writes down then is known to have happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from danaus.app.chaos_fault import Fault
from danaus.app.events import Event
from danaus.app.line_tail import LineTail


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one fault.

    Args:
        fault: Which.
        struck: Whether it struck.
        words: What struck, or why nothing did.
    """

    fault: Fault
    struck: bool
    words: str


class Asked:
    """The faults that were asked for and are not heard of yet.

    Args:
        journal: The run's.
    """

    def __init__(self, journal: Path) -> None:
        self._tail = LineTail(journal)
        self._open: dict[str, Fault] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, fault: Fault) -> None:
        """Wait for what becomes of a resolved fault."""
        self._open[fault.id] = fault

    def discard(self, fault: Fault) -> bool:
        """Do not wait for it any more; tell whether it was waited for."""
        return self._open.pop(fault.id, None) is not None

    def answers(self) -> list[Answer]:
        """Return what was heard since the last call."""
        if not self._open:
            return []
        found = []
        for line in self._tail.new_lines():
            name, event = line.get("fault"), line.get("event")
            if name in self._open and event in (Event.FAULT_INJECTED, Event.FAULT_MISSED):
                struck = event == Event.FAULT_INJECTED
                words = line.get("text" if struck else "reason", "")
                found.append(Answer(self._open.pop(name), struck, str(words)))
        return found
