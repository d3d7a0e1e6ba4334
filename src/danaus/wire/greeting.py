"""Opening a connection on an asyncio loop: dialling, and the handshake over it.

Owns a socket from its first step to the end of the handshake; ``channel`` goes on from there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from danaus.core.errors import (
    AddressRefused,
    ChannelClosed,
    DanausError,
    DeadlinePassed,
    HandshakeRefused,
)
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.handshake import Acceptor, Dialler

_BACKLOG_FULL_PAUSE_S = 0.005


async def connect(address: Address) -> socket.socket:
    """Return a connected socket, of the first of the address's endpoints that answers."""
    loop = asyncio.get_running_loop()
    if endpoint := sockets.literal_endpoint(address):
        endpoints = [endpoint]
    else:
        try:
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise AddressRefused(str(address), f"cannot be resolved: {error}") from error
        endpoints = sockets.resolved(address, found)  # type: ignore[arg-type]
    why = ""
    for endpoint in endpoints:
        sock = sockets.make(endpoint)
        try:
            await _connect_one(sock, endpoint)
            sockets.tune(sock)
        except OSError as error:
            sock.close()
            why = error.strerror or str(error)
        except asyncio.CancelledError:
            sock.close()
            raise
        else:
            return sock
    raise AddressRefused(str(address), why)


async def _connect_one(sock: socket.socket, endpoint: sockets.Endpoint) -> None:
    if endpoint.family != socket.AF_UNIX:
        await asyncio.get_running_loop().sock_connect(sock, endpoint.sockaddr)
        return
    while True:
        try:
            sock.connect(endpoint.sockaddr)
        except BlockingIOError:
            # The listener's backlog is full; such a socket polls as writable all the same.
            await asyncio.sleep(_BACKLOG_FULL_PAUSE_S)
        else:
            return


class Greeting:
    """Carries one handshake over one socket, by callbacks; calls ``on_done`` exactly once.

    On failure the socket is closed and ``on_done`` gets the error.
    """

    def __init__(
        self,
        sock: socket.socket,
        machine: Dialler | Acceptor,
        *,
        peer: str,
        limit_s: float,
        on_done: Callable[[Greeting, DanausError | None], None],
    ) -> None:
        self.sock = sock
        self.peer = peer
        self.machine = machine
        self._on_done = on_done
        self._limit_s = limit_s
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._out = machine.start() if isinstance(machine, Dialler) else b""
        self._ended = False
        self._timer = self._loop.call_later(limit_s, self._late)
        self._loop.add_reader(self._fd, self._readable)
        if self._out:
            self._loop.add_writer(self._fd, self._writable)

    def abandon(self, error: DanausError) -> None:
        """End now, as a failure."""
        self._finish(error)

    def _readable(self) -> None:
        try:
            data = self.sock.recv(65536)
            if not data:
                self._finish(ChannelClosed(self.peer, "it left during the handshake"))
                return
            self._out += self.machine.feed(data)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._finish(ChannelClosed(self.peer, f"{error.strerror} during the handshake"))
            return
        except HandshakeRefused as refused:
            self._finish(refused)
            return
        self._writable()

    def _writable(self) -> None:
        try:
            while self._out:
                self._out = self._out[self.sock.send(self._out) :]
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._fd, self._writable)
            return
        except OSError as error:
            self._finish(ChannelClosed(self.peer, f"{error.strerror} during the handshake"))
            return
        self._loop.remove_writer(self._fd)
        if self.machine.done:
            self._finish(None)

    def _late(self) -> None:
        self._finish(DeadlinePassed(f"the handshake with {self.peer}", self._limit_s))

    def _finish(self, error: DanausError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if error is not None:
            self.sock.close()
        self._on_done(self, error)
