"""Doors that strangers come to, for each way to listen, and somebody else's server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from danaus.core.clock import Deadline
from danaus.core.errors import ChannelClosed
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener, recv_frame, send_frame
from danaus.wire.channel import Channel, listen
from danaus.wire.secret import Secret

HANDSHAKE_LIMIT_S = 0.5


def soon() -> Deadline:
    return Deadline.after(20.0)


@contextlib.contextmanager
def loop_door(address: Address, secret: Secret) -> Iterator[Address]:
    """A channel listener that sends every message back, on a loop in a thread of its own."""
    ready: list[Address] = []
    begun = threading.Event()

    async def serve(channel: Channel) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                await channel.send(await channel.recv())
        channel.close()

    async def work() -> None:
        listener = await listen(address, secret, serve, handshake_limit_s=HANDSHAKE_LIMIT_S)
        ready.append(listener.address)
        begun.set()
        await asyncio.to_thread(over.wait, 60.0)
        await listener.close()

    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, work())
        assert begun.wait(10.0)
        yield ready[0]
        over.set()
        running.result()


@contextlib.contextmanager
def thread_door(address: Address, secret: Secret) -> Iterator[Address]:
    """A ``PeerListener`` whose peers get their next message back."""
    listener = PeerListener(address, secret, handshake_limit_s=HANDSHAKE_LIMIT_S)
    with ThreadPoolExecutor(1) as pool:

        def echo() -> None:
            with listener.take(b"good", soon()) as stream:
                send_frame(stream, recv_frame(stream, deadline=soon()), deadline=soon())

        echoing = pool.submit(echo)
        yield listener.address
        echoing.result()
    listener.close()


Door = Callable[[Address, Secret], contextlib.AbstractContextManager[Address]]


@contextlib.contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Somebody else's: takes one connection after the other, until the block is left."""
    with socket.create_server(("127.0.0.1", 0)) as bound:

        def work() -> None:
            while True:
                try:
                    sock, _ = bound.accept()
                except OSError:
                    return
                with sock, contextlib.suppress(OSError):
                    sock.settimeout(20.0)
                    serve(sock)
                    while sock.recv(1000):
                        pass

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield Address.tcp(*bound.getsockname())
        finally:
            bound.shutdown(socket.SHUT_RDWR)
            thread.join(20.0)
