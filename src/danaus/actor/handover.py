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
        self._loop = weakref.ref(loop)
        self._waiting: collections.deque[Callable[[], object]] = collections.deque()
        self._lock = threading.Lock()
        self._is_woken = False

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function that raises nothing; one that has ended does not."""
        with self._lock:
            self._waiting.append(function)
            if self._is_woken:
                return
            self._is_woken = True
        loop = self._loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended, nobody waits any more
                loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        with self._lock:
            functions, self._waiting = self._waiting, collections.deque()
            self._is_woken = False
        for function in functions:
            function()


_handovers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Handover] = (
    weakref.WeakKeyDictionary()
)


def handover_to(loop: asyncio.AbstractEventLoop) -> Handover:
    """Return the one to a loop; called on it."""
    found = _handovers.get(loop)
    if found is None:
        found = _handovers[loop] = Handover(loop)
    return found
