"""Those who wait until little enough of a session is unacknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from danaus.core.errors import ChannelClosed


class Drainers:
    """The waiters of one session; on its loop."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, below_bytes: int, limit_s: float, kept: Callable[[], int]) -> None:
        """Wait until at most ``below_bytes`` are unacknowledged, of which ``kept()`` are now.

        Raises:
            ChannelClosed: The session ended before.
            TimeoutError: ``limit_s`` passed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = below_bytes
        self.wake(kept())  # another thread may have read of it just before
        try:
            async with asyncio.timeout(limit_s):
                await future
        finally:
            self._waiting.pop(future, None)

    def wake(self, kept_bytes: int) -> None:
        """Let those go on who wait for no less than ``kept_bytes``."""
        for future, below_bytes in self._waiting.items():
            if kept_bytes <= below_bytes and not future.done():
                future.set_result(None)

    def fail(self, reason: ChannelClosed) -> None:
        """The session has ended."""
        for future in self._waiting:
            if not future.done():
                future.set_exception(ChannelClosed(reason.peer, reason.why))
