"""TLS once it is open: flipped bits, a goodbye in its own words, bytes that it holds back."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest
from tests.procs.wire.harness import Relay, Run

from danaus.core.clock import Deadline
from danaus.core.errors import ChannelClosed
from danaus.wire.address import Address
from danaus.wire.blocking import dial_peer
from danaus.wire.channel import Channel, dial, listen
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions
from danaus.wire.stream import TlsStream

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)

pytestmark = pytest.mark.usefixtures("far_loopback")


def soon() -> Deadline:
    return Deadline.after(20.0)


def test_a_flipped_bit_ends_the_connection_and_the_session_goes_on(run: Run) -> None:
    async def echo(session: Session) -> None:
        async for parts in session:
            session.send(parts)

    async def work() -> None:
        listener = await serve_sessions(LOOPBACK, SECRET, echo)
        async with Relay(listener.address, [], abrupt=False, flip_at=300_000) as relay:
            session = await open_session(relay.address, SECRET)
            for n in range(10):
                session.send([b"%d" % n, bytes(100_000)])
            for n in range(10):
                assert await session.receive() == [b"%d" % n, bytes(100_000)]
            assert relay.num_connections == 2
            await session.close()
        await listener.close()

    run(work())


def test_a_peer_that_says_goodbye_in_tls_is_gone(run: Run) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait)
        stream = await asyncio.to_thread(dial_peer, listener.address, SECRET, deadline=soon())
        channel = await accepted.get()
        assert isinstance(stream, TlsStream)
        with contextlib.suppress(ssl.SSLError):
            stream._tls.unwrap()
        stream._flush()
        with pytest.raises(ChannelClosed, match="the peer closed it"):
            await channel.recv()
        stream.close()
        await listener.close()

    run(work())


def test_whoever_looks_late_finds_what_came_with_other_bytes(run: Run) -> None:
    """Bytes that TLS holds make nothing readable: a paused channel finds them all the same."""

    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait)
        a = await dial(listener.address, SECRET)
        b = await accepted.get()
        got: list[bytes] = []

        def take(frames: list) -> None:  # type: ignore[type-arg]
            got.extend(bytes(frame.parts[0]) for frame in frames)
            b.pause()
            asyncio.get_running_loop().call_soon(b.resume)
            if len(got) == 100:
                done.set()

        done = asyncio.Event()
        b.attach(take, lambda error: done.set())
        for n in range(100):
            a.push([b"%d" % n + bytes(50_000)])
        await done.wait()
        assert got == [b"%d" % n + bytes(50_000) for n in range(100)]
        a.close()
        b.close()
        await listener.close()

    run(work())
