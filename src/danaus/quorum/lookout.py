"""Whether a process that nobody looks after is gone, as the machine that it ran on says.

Owns ``Lookout``: a process whose connection broke, and which has no host agent that could tell of
its end, is looked for where it took its peers.  Whoever dies leaves an address that refuses (P-2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from danaus.core.clock import Deadline
from danaus.quorum.messages import MemberId, Seat
from danaus.wire.address import Address
from danaus.wire.looking import look_for
from danaus.wire.owned_tasks import OwnedTasks

LOOK_FOR_S = 2.0
_PAUSE_S = 0.02
"""A process that dies closes one thing after the other."""


class Lookout:
    """Look for processes.

    Args:
        is_back: Tells whether a process is heard again.
        on_gone: Called with one of which nothing listens any more.
    """

    def __init__(
        self, *, is_back: Callable[[MemberId], bool], on_gone: Callable[[MemberId], None]
    ) -> None:
        self._is_back, self._on_gone = is_back, on_gone
        self._tasks = OwnedTasks("lookout")
        self._looking: set[MemberId] = set()

    def look(self, seat: Seat) -> None:
        """Look for a process until it is gone or back, for a while."""
        if seat.member not in self._looking:
            self._looking.add(seat.member)
            self._tasks.start(self._look(seat), f"looks for {seat.member}")

    async def close(self) -> None:
        """Look for nobody any more."""
        await self._tasks.close()

    async def _look(self, seat: Seat) -> None:
        try:
            address, deadline = Address.parse(seat.data_address), Deadline.after(LOOK_FOR_S)
            while not (deadline.passed or self._is_back(seat.member)):
                found = await look_for(address, deadline.remaining_s())
                if found == "gone" and not self._is_back(seat.member):
                    self._on_gone(seat.member)
                    return
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._looking.discard(seat.member)
