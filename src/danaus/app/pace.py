"""Gives each step of a run a length, so that there is time for faults between two of them.

Owns ``Pace``.  A tiny network's run would be over before anything could strike it from outside, or
before a dead replica is back.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danaus.ft.ledger import Committed
from danaus.ft.observer import Observer
from danaus.ft.work import StepResult
from danaus.wire.position import Phase


@dataclass(frozen=True, slots=True)
class Pace:
    """Makes an observer that gives each step a length, for as long as a file is not there.

    Args:
        step_s: Seconds that a step takes at least.
        until: The file that ends this; ``Path.touch`` it to let the run finish.
        below: Only while fewer replicas than this commit a step together; None: always.
    """

    step_s: float
    until: Path
    below: int | None = None

    def __call__(self, work: Any) -> Observer:
        return _Paced(self)


class _Paced(Observer):
    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._step = self._strength = 0
        self._never = threading.Event()

    def entered(self, step: int, phase: Phase, number: int) -> None:
        if phase is not Phase.COMPUTE or step == self._step:
            return
        self._step = step
        below = self._pace.below
        if (below is None or self._strength < below) and not self._pace.until.exists():
            self._never.wait(self._pace.step_s)

    def committed(self, line: Committed, result: StepResult) -> None:
        self._strength = len(line.leaves)
