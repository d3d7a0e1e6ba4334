"""Which of several actors gets the next message of ``choose``: the one with the least to do.

Pure but for its lock: numbers in, numbers out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Choice:
    """Counts what each of ``num_points`` was given from here and has not answered.

    Args:
        num_points: How many there are to choose from.
    """

    def __init__(self, num_points: int) -> None:
        self._open = [0] * num_points
        self._turn = 0
        self._lock = threading.Lock()

    def take(self, usable: Callable[[int], bool]) -> int:
        """Return one of those with the fewest open messages, in turn, and count one more there.

        Args:
            usable: Tells whether one may be taken; if none may, that is not asked for.
        """
        with self._lock:
            size = len(self._open)
            order = sorted(range(size), key=lambda at: (self._open[at], (at - self._turn) % size))
            at = next((each for each in order if usable(each)), order[0])
            self._turn = (at + 1) % size
            self._open[at] += 1
            return at

    def give_back(self, at: int) -> None:
        """Learn that one message was answered."""
        with self._lock:
            self._open[at] -= 1
