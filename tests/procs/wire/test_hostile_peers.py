"""Peers that lie, babble, or say nothing at all: each loses its own connection, in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from tests.procs.wire.harness import Run

from danaus.core.errors import (
    ChannelClosed,
    DeadlinePassed,
    FrameDamaged,
    HandshakeRefused,
)
from danaus.wire.address import Address
from danaus.wire.channel import Channel, Listener, dial, listen
from danaus.wire.frame import Kind, encode_head
from danaus.wire.handshake import Dialler
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@contextlib.asynccontextmanager
async def stranger(serve: Serve) -> AsyncIterator[Address]:
    """A server of somebody else."""
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None] | None] = []

    async def remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.append(asyncio.current_task())
        result = serve(reader, writer)
        if asyncio.iscoroutine(result):
            await result

    server = await asyncio.start_server(remember, "127.0.0.1", 0)
    try:
        yield Address.tcp(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(task for task in tasks if task))
        await server.wait_closed()


@contextlib.asynccontextmanager
async def raw(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def proven(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a raw connection behind a good handshake: the peer may say what it likes."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    machine = Dialler(SECRET)
    writer.write(machine.start())
    while not machine.done:
        writer.write(machine.feed(await reader.read(machine.need_bytes)))
    return reader, writer


async def check_alive(listener: Listener, accepted: asyncio.Queue[Channel]) -> None:
    """Everybody else is served as ever."""
    a = await dial(listener.address, SECRET, b"a good one")
    while (b := await accepted.get()).hello != b"a good one":
        pass
    await a.send([b"ping"])
    assert await b.recv() == [b"ping"]
    a.close()
    b.close()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.name == "danaus.wire"]
    return [each.getMessage() for each in records if each.levelno >= logging.WARNING]


# -- who dials one of those ------------------------------------------------------------------


def test_one_that_accepts_and_says_nothing_is_given_up(run: Run) -> None:
    async def work() -> None:
        async with stranger(lambda reader, writer: None) as address:
            with pytest.raises(DeadlinePassed):
                await dial(address, SECRET, limit_s=0.1)
            with pytest.raises(DeadlinePassed):
                await open_session(address, SECRET, open_limit_s=0.1)

    run(work())


def test_one_that_never_accepts_is_given_up(run: Run) -> None:
    async def work() -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            address = Address.tcp(*silent.getsockname())
            dials = [dial(address, SECRET, limit_s=0.1) for _ in range(4)]
            for outcome in await asyncio.gather(*dials, return_exceptions=True):
                assert isinstance(outcome, DeadlinePassed)

    run(work())


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0", b"danausD1" * 99])
def test_one_that_speaks_otherwise_is_refused(run: Run, words: bytes) -> None:
    async def work() -> None:
        async with stranger(lambda reader, writer: writer.write(words)) as address:
            with pytest.raises(HandshakeRefused, match="speak"):
                await dial(address, SECRET)
            with pytest.raises(HandshakeRefused, match="speak"):
                await open_session(address, SECRET)

    run(work())


def test_one_that_hangs_up_is_told_so(run: Run) -> None:
    async def work() -> None:
        async with stranger(lambda reader, writer: writer.close()) as address:
            with pytest.raises(ChannelClosed, match="handshake"):
                await dial(address, SECRET)
            with pytest.raises(ChannelClosed):
                await open_session(address, SECRET, open_limit_s=0.1)

    run(work())


def test_a_mirror_is_refused(run: Run) -> None:
    async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)

    async def work() -> None:
        async with stranger(mirror) as address:
            with pytest.raises(HandshakeRefused):
                await dial(address, SECRET)

    run(work())


def test_a_channel_that_welcomes_no_session_is_given_up(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("danaus.wire.session.HANDSHAKE_LIMIT_S", 0.05)
    channels: list[Channel] = []

    async def work() -> None:
        listener = await listen(LOOPBACK, SECRET, channels.append)
        with pytest.raises(DeadlinePassed, match="welcome"):
            await open_session(listener.address, SECRET, open_limit_s=0.3)
        assert len(channels) > 1
        for channel in channels:
            channel.close()
        await listener.close()

        listener = await listen(LOOPBACK, SECRET, lambda channel: channel.push([b"no welcome"]))
        with pytest.raises(FrameDamaged, match="instead of a welcome"):
            await open_session(listener.address, SECRET)
        await listener.close()

    run(work())


# -- who is dialled by one of those ----------------------------------------------------------


def test_babblers_lose_their_connection_and_nobody_elses(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(7)
    words = [chance.randbytes(chance.randrange(1, 200)) for _ in range(40)]
    good = Dialler(SECRET, b"hello").start()
    words += [
        b"danausD1" + chance.randbytes(36),
        good + chance.randbytes(32),
        b"GET / HTTP/1.1\r\n",
    ]

    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait)
        for each in words:
            async with raw(listener.address) as (reader, writer):
                writer.write(each)
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
        assert accepted.empty()
        await check_alive(listener, accepted)
        await listener.close()

    run(work())
    assert len(warnings_of(caplog)) == len(words)


def test_the_silent_are_dropped_in_time(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    greeting = Dialler(SECRET, b"hello").start()

    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait, handshake_limit_s=0.2)
        async with contextlib.AsyncExitStack() as stack:
            peers = []
            for said in (b"", greeting[:5], greeting[:-1], greeting):
                peers.append(await stack.enter_async_context(raw(listener.address)))
                peers[-1][1].write(said)
            await check_alive(listener, accepted)
            for reader, _ in peers:
                while await reader.read(1000):
                    pass
        assert accepted.empty()
        await listener.close()

    run(work())
    assert len(warnings_of(caplog)) == 4


def test_a_crowd_of_silent_ones_keeps_nobody_out(run: Run) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait)
        crowd = [
            socket.create_connection((LOOPBACK.host, listener.address.port)) for _ in range(600)
        ]
        await check_alive(listener, accepted)
        for each in crowd:
            each.close()
        await listener.close()

    run(work())


def test_scanners_are_not_worth_a_warning(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait)
        for reset in (False, True):
            with socket.create_connection((LOOPBACK.host, listener.address.port)) as sock:
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await check_alive(listener, accepted)
        await listener.close()

    run(work())
    assert warnings_of(caplog) == []


def damages() -> dict[str, bytes]:
    frame = b"".join([encode_head(Kind.MESSAGE, [b"payload"]), b"payload"])
    return {
        "garbage": b"\1\2\3",
        "head": frame[:20] + b"\xff" + frame[21:],
        "payload": frame[:-1] + b"!",
        "shifted": frame[1:],
        "second": frame + frame[:-1] + b"!",
        "huge": encode_head(Kind.MESSAGE, [b"x" * 2000]),
    }


@pytest.mark.parametrize("kind", damages())
def test_a_damaged_frame_ends_its_channel_with_one_line(
    run: Run, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait, max_frame_bytes=1000)
        reader, writer = await proven(listener.address)
        channel = await accepted.get()
        writer.write(damages()[kind])
        if kind == "second":
            assert await channel.recv() == [b"payload"]
        with pytest.raises(FrameDamaged):
            await channel.recv()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.transport.abort()
        await check_alive(listener, accepted)
        await listener.close()

    run(work())
    (line,) = warnings_of(caplog)
    assert "damaged frame from tcp:127.0.0.1" in line


def test_half_a_frame_and_the_end_is_told_from_an_orderly_end(run: Run) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait)
        for said, why in ((b"", "closed it"), (encode_head(Kind.MESSAGE, [b"x"]), "middle")):
            _, writer = await proven(listener.address)
            channel = await accepted.get()
            writer.write(said)
            writer.close()
            with pytest.raises(ChannelClosed, match=why):
                await channel.recv()
        await listener.close()

    run(work())


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([(Kind.MESSAGE, 2, 0)], "message 2 came after 0"),
        ([(Kind.MESSAGE, 1, 0), (Kind.MESSAGE, 3, 0)], "message 3 came after 1"),
        ([(Kind.ACK, 0, 9)], "acknowledges message 9"),
        ([(Kind.WELCOME, 0, 0)], "in the middle"),
    ],
)
def test_what_cannot_be_of_this_session_ends_it(run: Run, frames: list, why: str) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(LOOPBACK, SECRET, accepted.put_nowait)
        bystander = await open_session(listener.address, SECRET)
        await accepted.get()
        liar = await open_session(listener.address, SECRET)
        session = await accepted.get()
        for kind, number, ack in frames:
            liar._channel.push([], kind, number=number, ack=ack)  # type: ignore[union-attr]
        assert why in (await session.closed).why
        assert not (await liar.closed).why.startswith("no connection")
        assert bystander.is_connected
        await bystander.close()
        await listener.close()

    run(work())


def test_repeated_messages_are_dropped(run: Run) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(LOOPBACK, SECRET, accepted.put_nowait)
        a = await open_session(listener.address, SECRET)
        b = await accepted.get()
        a.send([b"one"])
        for _ in range(3):
            a._channel.push([b"one"], number=1)  # type: ignore[union-attr]
        a.send([b"two"])
        assert [await b.receive(), await b.receive()] == [[b"one"], [b"two"]]
        await a.close()
        assert [parts async for parts in b] == []
        await listener.close()

    run(work())


def test_a_hello_that_is_no_sessions_is_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        listener = await serve_sessions(LOOPBACK, SECRET, lambda session: None)
        for hello in (b"", b"\xff" * 30):
            channel = await dial(listener.address, SECRET, hello)
            with pytest.raises(ChannelClosed):
                await channel.recv()
            channel.close()
        await listener.close()

    run(work())
    assert len(warnings_of(caplog)) == 2
