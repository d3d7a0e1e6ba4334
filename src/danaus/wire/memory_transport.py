"""A transport without a socket: two ends inside one loop, for tests and for peers in one process.

Frames pass through the same encoder and parser as everywhere.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Sequence

from danaus.core.errors import ChannelClosed, DanausError, FrameDamaged
from danaus.wire.frame import (
    DEFAULT_MAX_FRAME_BYTES,
    Buffer,
    FrameParser,
    Kind,
    encode_head,
)
from danaus.wire.reading import SharedReading
from danaus.wire.resume import Fds
from danaus.wire.transport import Receiver, why_ended

_log = logging.getLogger("danaus.wire")


class MemoryTransport:
    """A transport to another one of the same loop; frames go through the same parser."""

    def __init__(self, peer: str, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self.peer = peer
        self.other: MemoryTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._max_frame_bytes = max_frame_bytes
        self._parser = FrameParser(peer, max_frame_bytes)
        self._receiver: Receiver | None = None
        self._arrived: collections.deque[bytes] = collections.deque()
        self._paused = False
        self._ended: DanausError | None = None
        self._queued_bytes = 0

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop.call_soon(self._deliver)

    def share_reading(self, reading: SharedReading) -> bool:
        return False

    carries_fds = False

    def take_fd(self) -> int:
        raise FrameDamaged(self.peer, "no descriptor goes this way")

    def push(
        self, kind: Kind, parts: Sequence[Buffer], *, number: int, ack: int, fds: Fds = ()
    ) -> int:
        if self._ended is not None or self.other is None:
            raise ChannelClosed(self.peer, why_ended(self._ended))
        head = encode_head(
            kind, parts, number=number, ack=ack, max_frame_bytes=self._max_frame_bytes
        )
        self.other.put(b"".join((head, *parts)))
        self._queued_bytes += 1
        return self._queued_bytes

    async def written(self, mark: int) -> None:
        if self._ended is not None:
            raise ChannelClosed(self.peer, why_ended(self._ended))

    def keep_copies(self) -> None:
        """Nothing to do: ``push`` copied."""

    def put(self, data: bytes) -> None:
        """Take bytes from the other end."""
        self._arrived.append(data)
        self._loop.call_soon(self._deliver)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def close(self) -> None:
        if self._ended is None:
            self._ended = ChannelClosed(self.peer, "this side closed it")
            if self.other is not None:
                lost = ChannelClosed(self.other.peer, "the peer closed it")
                self._loop.call_soon(self.other.lose, lost)

    def lose(self, error: DanausError) -> None:
        """End because of ``error``, and tell the receiver."""
        if self._ended is None:
            self._deliver()
            self.close()
            self._ended = error
            if self._receiver is not None:
                self._receiver.transport_lost(error)

    def _deliver(self) -> None:
        while self._arrived and self._receiver is not None:
            if self._paused or self._ended is not None:
                return
            try:
                frames = self._parser.feed(self._arrived.popleft())
            except FrameDamaged as damage:
                _log.warning("%s", damage)
                self.lose(damage)
                return
            self._receiver.frames_arrived(frames)
