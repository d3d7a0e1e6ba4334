"""When what a session received is acknowledged in a frame of its own: soon, or a little later.

Where answers go out all the time, they acknowledge: a frame of its own would wake the other end for
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from danaus.wire.own_loop import OwnLoop
from danaus.wire.resume import Window

ACK_DELAY_S = 0.02
READERS_ACK_DELAY_S = 0.2
"""Where another thread reads, so much more rarely is the loop woken to see to it."""


class Acknowledging:
    """Of one session; whatever goes out acknowledges as well.

    Args:
        window: What it has received.
        acknowledge: Sends such a frame, from any thread.
    """

    def __init__(self, window: Window, acknowledge: Callable[[], None]) -> None:
        self._window = window
        self._acknowledge = acknowledge
        self._own = OwnLoop()
        self._is_planned = False
        self._oldest = 0  # that was owed when it was planned
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def received(self) -> None:
        """See to what is owed; on whichever thread has received it."""
        if self._window.ack_is_due:
            self._acknowledge()
        elif not self._is_planned and self._window.oldest_owed:
            self._is_planned = True
            is_loops = self._own.is_current
            self._own.now_or_soon(self._plan, ACK_DELAY_S if is_loops else READERS_ACK_DELAY_S)

    def close(self) -> None:
        """Acknowledge nothing more; on the loop."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self, delay_s: float) -> None:
        if not self._is_closed:
            self._oldest = self._window.oldest_owed
            self._timer = self._own.loop.call_later(delay_s, self._late, delay_s)

    def _late(self, delay_s: float) -> None:
        oldest = self._window.oldest_owed
        if oldest > self._oldest:  # what was owed then has been acknowledged by what went out
            self._plan(delay_s)
            return
        self._is_planned = False
        if oldest:
            self._acknowledge()
