"""How the messages of a session reach whoever waits for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from danaus.core.errors import ChannelClosed
from danaus.wire.inbox import Inbox

OnMessage = Callable[[list[bytearray]], None]


class Receiving:
    """What has arrived: for a callback if there is one, else for whoever asks."""

    def __init__(self) -> None:
        self._clean = False
        self._on_message: OnMessage | None = None
        self._inbox: Inbox[list[bytearray]] = Inbox(self._inbox_full)

    async def receive(self) -> list[bytearray]:
        """Return the next message's parts, in memory that is the caller's.

        Raises:
            ChannelClosed: The session has ended and everything that arrived was received.
        """
        return await self._inbox.take()

    async def __aiter__(self) -> AsyncIterator[list[bytearray]]:
        """Yield messages until either end closes the session.

        Raises:
            ChannelClosed: It ended otherwise.
        """
        while True:
            try:
                parts = await self._inbox.take()
            except ChannelClosed:
                if self._clean:
                    return
                raise
            yield parts

    @property
    def on_message(self) -> OnMessage | None:
        """Called with each message straight from the loop (or from whoever reads instead of it).

        Should it raise, the session ends: a message would be lost otherwise.  ``FrameDamaged`` is
        taken as the peer's fault and logged, anything else goes on to the loop's handler.
        """
        return self._on_message

    @on_message.setter
    def on_message(self, callback: OnMessage | None) -> None:
        self._on_message = callback
        if callback is not None:
            for parts in self._inbox.take_now():
                callback(parts)

    def _take(self, parts: list[bytearray], size: int) -> None:
        if self._on_message is not None:
            self._on_message(parts)
        else:
            self._inbox.put(parts, size)

    def _inbox_full(self, is_full: bool) -> None:
        raise NotImplementedError
