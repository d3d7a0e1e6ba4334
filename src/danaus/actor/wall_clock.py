"""The time of day, as it is written into failures."""

from __future__ import annotations

from danaus.core.clock import time_of_day


class WallClock:
    """Seconds since the Unix epoch."""

    def now(self) -> float:
        return time_of_day()
