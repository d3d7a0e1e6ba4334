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

from danaus.wire.reading import soon_here


class Handover:
    """Functions for one loop.

    Args:
        loop: Calls them, in order.

    Attributes:
        turn: How often the loop has called what waited.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._waiting: collections.deque[Callable[[], object]] = collections.deque()
        self._is_woken = False
        self.turn = 0

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function; one that has ended does not."""
        self._waiting.append(function)
        if self._is_woken:  # and looks at what waits only after it has said no
            return
        self._is_woken = True
        loop = self.loop()
        if loop is not None and asyncio._get_running_loop() is loop:
            soon_here(loop, self._call_all)
        elif loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended, nobody waits any more
                loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._is_woken = False
        self.turn += 1
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):
                waiting.popleft()()
        finally:
            if waiting and not self._is_woken:  # one of them ends the program, say
                self._is_woken = True
                asyncio.get_running_loop().call_soon(self._call_all)


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
