"""Where a step's time goes, by phase."""

from __future__ import annotations

import statistics
from collections import deque

from danaus.core.clock import Clock, MonotonicClock
from danaus.wire.position import Phase

_BETWEEN = frozenset(p.name.lower() for p in (Phase.START, Phase.JOIN, Phase.HOLD, Phase.LEARN))
"""Lie between steps: no part of what a step takes."""
_NUM_STEPS = 5


class Stopwatch:
    """Adds up the seconds spent in each phase since the last ``take``.

    Args:
        clock: Where time comes from.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._steps_s = deque[float](maxlen=_NUM_STEPS)
        self._clock = clock or MonotonicClock()
        self._phase = ""
        self._since = self._clock.now()
        self._spent_s: dict[str, float] = {}

    def enter(self, phase: str) -> str:
        """The time from here on belongs to ``phase``; return the one before."""
        now = self._clock.now()
        if self._phase:
            spent_s = self._spent_s.get(self._phase, 0.0) + now - self._since
            self._spent_s[self._phase] = spent_s
        before, self._phase, self._since = self._phase, phase, now
        return before

    def take(self) -> dict[str, float]:
        """Return the seconds by phase, and begin anew in the same phase."""
        self.enter(self._phase)
        spent_s, self._spent_s = self._spent_s, {}
        self._steps_s.append(sum(value for p, value in spent_s.items() if p not in _BETWEEN))
        return {phase: round(value, 6) for phase, value in spent_s.items()}

    @property
    def usual_s(self) -> float:
        """What a step took lately, from ``take`` to ``take``; 0 before the first."""
        return statistics.median_low(self._steps_s) if self._steps_s else 0.0
