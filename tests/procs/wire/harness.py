"""Names that the tests of this folder share."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from danaus.wire.address import Address
from danaus.wire.channel import Channel

Run = Callable[[Coroutine[Any, Any, Any]], Any]
ChannelPair = Callable[[], AbstractAsyncContextManager[tuple[Channel, Channel]]]


class Relay:
    """Stands between a dialler and a listener and can cut what passes at any byte.

    Args:
        target: Where the listener is.
        cuts: For each connection in turn, after how many bytes (both ways together) it is cut;
            None, and every connection after the last, passes everything.
        abrupt: Cut with a reset instead of an orderly end.
        flip_at: Which byte of the first connection (both ways together) comes out damaged.
    """

    def __init__(
        self,
        target: Address,
        cuts: Sequence[int | None],
        *,
        abrupt: bool,
        flip_at: int | None = None,
    ) -> None:
        self._flip_at = flip_at
        self._target = target
        self._cuts = iter(cuts)
        self._abrupt = abrupt
        self._tasks: set[asyncio.Task[None]] = set()
        self._live: set[asyncio.StreamWriter] = set()
        self.num_connections = 0
        self.passed_bytes: list[int] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address.tcp(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut_all()
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._server.wait_closed()

    def cut_all(self) -> None:
        """Cut every connection there is now."""
        for writer in list(self._live):
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        if writer not in self._live:
            return
        if self._abrupt:
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        self._live.discard(writer)

    def _damaged(self, data: bytes, at: int) -> bytes:
        if self._flip_at is None or not at <= self._flip_at < at + len(data):
            return data
        changed = bytearray(data)
        changed[self._flip_at - at] ^= 1
        self._flip_at = None
        return bytes(changed)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if me := asyncio.current_task():
            self._tasks.add(me)
            me.add_done_callback(self._tasks.discard)
        index, self.num_connections = self.num_connections, self.num_connections + 1
        self.passed_bytes.append(0)
        allowed = next(self._cuts, None)
        if self._target.scheme == "unix":
            there = await asyncio.open_unix_connection(self._target.path)
        else:
            there = await asyncio.open_connection(self._target.host, self._target.port)
        both = (writer, there[1])
        self._live.update(both)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    room = len(data)
                    if allowed is not None:
                        room = min(room, allowed - self.passed_bytes[index])
                    data = self._damaged(data, self.passed_bytes[index])
                    self.passed_bytes[index] += room
                    sink.write(data[:room])
                    if self.passed_bytes[index] == allowed:
                        break
                    await sink.drain()
            # What was allowed is on its way before the end is.
            with contextlib.suppress(OSError):
                await sink.drain()
            for each in both:
                self._end(each)

        pumps = [
            asyncio.ensure_future(pump(reader, there[1])),
            asyncio.ensure_future(pump(there[0], writer)),
        ]
        self._tasks.update(pumps)
        for each in pumps:
            each.add_done_callback(self._tasks.discard)
        await asyncio.wait(pumps)
