"""What other threads have a loop do, woken once for all that comes together.

Owns ``Handover``, one for each running loop.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
import weakref
from collections.abc import Callable


class Handover:
    """Functions for one loop.

    Args:
        loop: Calls them, in order.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._waiting: collections.deque[Callable[[], object]] = collections.deque()
        self._is_woken = False

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function that raises nothing; one that has ended does not."""
        self._waiting.append(function)
        if self._is_woken:  # and looks at what waits only after it has said no
            return
        self._is_woken = True
        loop = self.loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended, nobody waits any more
                loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._is_woken = False
        waiting = self._waiting
        for _ in range(len(waiting)):
            waiting.popleft()()


class _Here(threading.local):
    """The handover to the loop that ran last on a thread."""

    handover: Handover | None = None


_here = _Here()


def handover_to(loop: asyncio.AbstractEventLoop) -> Handover:
    """Return the one to a loop; called on it."""
    found = _here.handover
    if found is None or found.loop() is not loop:
        found = _here.handover = Handover(loop)
    return found
