"""Time that a test moves by hand."""

from __future__ import annotations


class ManualClock:
    """A ``danaus.core.clock.Clock`` that stands still until it is moved.

    Args:
        start_s: The first ``now``, in seconds.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        """Return the moment it was last moved to, in seconds."""
        return self._now_s

    def advance(self, by_s: float) -> float:
        """Move ``by_s`` seconds on and return the new moment; time never falls."""
        if by_s < 0:
            raise ValueError(f"time does not go back: asked for {by_s} s")
        self._now_s += by_s
        return self._now_s
