"""Time as a value that is passed in.

Owns the ``Clock`` protocol, the real clock, ``Deadline`` and ``time_of_day``.  Pure machines get
``now`` as a number; shells get a ``Clock``; tests pass a manual one (``danaus.testing.clock``).
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Protocol

from danaus.core.errors import DeadlinePassed


class Clock(Protocol):
    """A source of monotonic time."""

    def now(self) -> float:
        """Return seconds since an arbitrary origin; never falls."""
        ...


class MonotonicClock:
    """The machine's monotonic clock (the same origin for every process of one host)."""

    def now(self) -> float:
        return time.monotonic()


class BootClock:
    """The machine's monotonic clock that goes on while the machine sleeps."""

    def now(self) -> float:
        # Elsewhere (macOS) it is CLOCK_MONOTONIC that goes on, and no other.
        clock = time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else time.CLOCK_MONOTONIC
        return time.clock_gettime(clock)


@functools.cache
def _epoch_s() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)


def time_of_day() -> float:
    """Return seconds since 1970, to write down beside what happened; nothing is decided by them.

    They go with the monotonic clock from when they are first asked for, in this process or in the
    one that it was forked from: a clock that is set while a run goes on tears no record apart.
    """
    # Of the kernel, not ``time.monotonic``: a fault on purpose moves that, and in the record of
    # such a fault, too, what comes later must be later.
    return _epoch_s() + time.clock_gettime(time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which something must have happened.

    Args:
        clock: Where ``now`` comes from.
        limit_s: How long the wait was allowed to be, in seconds (for messages).
        at: The moment itself, on ``clock``.
    """

    clock: Clock
    limit_s: float
    at: float

    @classmethod
    def after(cls, limit_s: float, clock: Clock | None = None) -> Deadline:
        """Return the deadline ``limit_s`` seconds from now."""
        clock = clock or MonotonicClock()
        return cls(clock=clock, limit_s=limit_s, at=clock.now() + limit_s)

    def remaining_s(self) -> float:
        """Return the seconds left, 0.0 once it has passed."""
        return max(0.0, self.at - self.clock.now())

    @property
    def passed(self) -> bool:
        """Tell whether the moment has come."""
        return self.clock.now() >= self.at

    def check(self, waited_for: str) -> None:
        """Raise ``DeadlinePassed`` once the moment has come."""
        if self.passed:
            raise DeadlinePassed(waited_for=waited_for, limit_s=self.limit_s)
