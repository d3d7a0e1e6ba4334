"""Opening a connection on an asyncio loop: where an address is, and the steps to a proven stream.

Drives ``opening`` by the loop's readiness; ``channel`` goes on from there.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

from danaus.core.errors import AddressRefused, DanausError, DeadlinePassed
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.opening import CROWDED_RETRY_S, Opening


async def resolve(address: Address) -> list[sockets.Endpoint]:
    """Return where ``address`` is, without holding the loop.

    Raises:
        AddressRefused: The name is not known.
    """
    if endpoint := sockets.literal_endpoint(address):
        return [endpoint]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressRefused(str(address), f"cannot be resolved: {error}") from error
    return sockets.resolved(address, found)  # type: ignore[arg-type]


class Greeting:
    """Carries one opening to its end, by callbacks; calls ``on_done`` exactly once.

    On failure the socket is closed and ``on_done`` gets the error.

    Args:
        opening: The connection; the greeting owns it.
        limit_s: Seconds until it counts as failed.
        on_done: Told of the end.
    """

    def __init__(
        self,
        opening: Opening,
        *,
        limit_s: float,
        on_done: Callable[[Greeting, DanausError | None], None],
    ) -> None:
        self.opening = opening
        self.peer = opening.peer
        self._on_done = on_done
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._watched = -1
        self._ended = False
        self._again: asyncio.TimerHandle | None = None
        self._timer = self._loop.call_later(limit_s, self._late)
        self._watch()

    def abandon(self, error: DanausError) -> None:
        """End now, as a failure."""
        self._finish(error)

    def _watch(self) -> None:
        """Have the loop call when the opening can go on."""
        if self.opening.crowded:
            self._again = self._loop.call_later(CROWDED_RETRY_S, self._go)
            return
        self._watched = self.opening.fileno()
        sends = self.opening.interest == select.POLLOUT
        (self._loop.add_writer if sends else self._loop.add_reader)(self._watched, self._go)

    def _unwatch(self) -> None:
        # Before each step: an opening may close one socket and go on with another.
        if self._again is not None:
            self._again.cancel()
        if self._watched >= 0:
            self._loop.remove_reader(self._watched)
            self._loop.remove_writer(self._watched)
        self._watched, self._again = -1, None

    def _go(self) -> None:
        if self._ended:
            return
        self._unwatch()
        try:
            done = self.opening.advance()
        except DanausError as error:
            self._finish(error)
            return
        if done:
            self._finish(None)
        else:
            self._watch()

    def _late(self) -> None:
        self._finish(DeadlinePassed(f"the handshake with {self.peer}", self._limit_s))

    def _finish(self, error: DanausError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self._unwatch()
        if error is not None:
            self.opening.close()
        self._on_done(self, error)
