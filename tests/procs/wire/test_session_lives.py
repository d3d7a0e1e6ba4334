"""Backlogs, borrowed buffers, handlers that fail, listeners that close."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from tests.procs.wire.harness import Relay, Run

from danaus.core.errors import ChannelClosed, MessageTooLarge
from danaus.wire.address import Address
from danaus.wire.channel import Channel, dial, listen
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)


class Pair:
    """Two ends of a session."""

    async def __aenter__(self) -> tuple[Session, Session]:
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        self.listener = await serve_sessions(LOOPBACK, SECRET, accepted.put_nowait)
        self.session = await open_session(self.listener.address, SECRET)
        return self.session, await accepted.get()

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.listener.close()


def test_who_does_not_read_stops_the_sender_and_loses_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("danaus.wire.inbox.INBOX_BYTES", 1_000_000)

    async def work() -> None:
        async with Pair() as (a, b):
            part = bytes(100_000)
            for _ in range(300):
                a.send([part])
            with pytest.raises(TimeoutError):
                await a.drain(0.3)
            held = a.kept_bytes
            assert held > 5_000_000
            for n in range(300):
                assert await b.receive() == [part], n
            await a.drain(5.0)

    run(work())


def test_a_channel_that_is_not_read_stops_the_sender(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("danaus.wire.inbox.INBOX_BYTES", 1_000_000)

    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(LOOPBACK, SECRET, accepted.put_nowait)
        a = await dial(listener.address, SECRET)
        b = await accepted.get()
        sent = 0
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(0.5):
                while True:
                    await a.send([bytes(100_000)])
                    sent += 1
        for _ in range(sent):
            assert await b.recv() == [bytes(100_000)]
        a.close()
        b.close()
        await listener.close()

    run(work())


def test_buffers_can_be_had_back(run: Run) -> None:
    async def work() -> None:
        async with Pair() as (a, b):
            b._channel.pause()  # type: ignore[union-attr]
            borrowed = [bytearray(b"a" * 9_000_000), bytearray(b"b" * 3_000_000)]
            numbers = [a.send([memoryview(each)]) for each in borrowed]
            for number in numbers:
                a.keep_copies(number)
            for each in borrowed:
                each[:] = bytes(len(each))
            b._channel.resume()  # type: ignore[union-attr]
            assert await b.receive() == [b"a" * 9_000_000]
            assert await b.receive() == [b"b" * 3_000_000]
            a.keep_copies(numbers[0])

    run(work())


def test_copies_are_what_is_sent_again(run: Run) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(LOOPBACK, SECRET, accepted.put_nowait)
        async with Relay(listener.address, [], abrupt=True) as relay:
            a = await open_session(relay.address, SECRET)
            b = await accepted.get()
            lost = asyncio.Event()
            a.on_disconnect = lambda _: lost.set()
            relay.cut_all()
            await lost.wait()
            borrowed = bytearray(b"a" * 5000)
            number = a.send([borrowed])
            a.keep_copies(number)
            borrowed[:] = bytes(5000)
            assert await b.receive() == [b"a" * 5000]
            await a.close()
        await listener.close()

    run(work())


def test_a_large_message_is_not_copied_about(run: Run) -> None:
    """The receiver's memory is allocated once; the sender allocates next to nothing."""
    size = 60_000_000
    payload = memoryview(bytearray(size))

    async def work() -> None:
        async with Pair() as (a, b):
            tracemalloc.start()
            a.send([payload])
            (got,) = await b.receive()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert len(got) == size
            assert peak < size + 2_000_000

    run(work())


def test_what_is_too_large_is_refused_before_it_counts(run: Run) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(LOOPBACK, SECRET, accepted.put_nowait, max_frame_bytes=100)
        a = await open_session(listener.address, SECRET, max_frame_bytes=100)
        b = await accepted.get()
        for parts in ([b"x" * 101], [b""] * 5000):
            with pytest.raises(MessageTooLarge):
                a.send(parts)
        assert a.send([b"x" * 100]) == 1
        assert await b.receive() == [b"x" * 100]
        await a.close()
        await listener.close()

    run(work())


def test_callbacks_get_messages_without_a_task(run: Run) -> None:
    async def work() -> None:
        async with Pair() as (a, b):
            b.on_message = lambda parts: b.send([b"back", *parts]) and None
            got: asyncio.Queue[list[bytearray]] = asyncio.Queue()
            a.send([b"1"])
            assert await a.receive() == [b"back", b"1"]
            a.send([b"2"])
            a.send([b"3"])
            a.on_message = got.put_nowait
            assert [await got.get(), await got.get()] == [[b"back", b"2"], [b"back", b"3"]]
            a.on_message = None
            a.send([b"4"])
            assert await a.receive() == [b"back", b"4"]

    run(work())


def test_a_failing_callback_ends_its_session_only() -> None:
    problems: list[object] = []

    def fail(parts: list[bytearray]) -> None:
        raise ZeroDivisionError

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: problems.append(what["exception"]))
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(LOOPBACK, SECRET, accepted.put_nowait)
        good = await open_session(listener.address, SECRET)
        await accepted.get()
        a = await open_session(listener.address, SECRET)
        b = await accepted.get()
        b.on_message = fail
        a.send([b"x"])
        assert "failed" in (await b.closed).why
        assert (await a.closed).why
        assert good.is_connected
        await good.close()
        await listener.close()

    asyncio.run(work())
    assert [type(each) for each in problems] == [ZeroDivisionError]


def test_a_failing_handler_ends_its_session(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(session: Session) -> None:
        await session.receive()
        raise ZeroDivisionError

    async def work() -> None:
        listener = await serve_sessions(LOOPBACK, SECRET, handler)
        a = await open_session(listener.address, SECRET, lost_limit_s=5.0)
        a.send([b"x"])
        assert (await a.closed).why
        await listener.close()

    run(work())
    assert "ZeroDivisionError" in caplog.text


def test_closing_a_listener_ends_everything_it_owns(run: Run, address: Address) -> None:
    async def handler(session: Session) -> None:
        async for _ in session:
            pass

    async def work() -> None:
        listener = await serve_sessions(address, SECRET, handler)
        sessions = [await open_session(listener.address, SECRET) for _ in range(5)]
        waits = [asyncio.ensure_future(session.receive()) for session in sessions]
        await asyncio.sleep(0)
        await listener.close()
        for session, wait in zip(sessions, waits, strict=True):
            assert (await session.closed).why == "the peer closed it"
            with pytest.raises(ChannelClosed):
                await wait
        again = await serve_sessions(listener.address, SECRET, handler)
        await again.close()
        await again.close()

    run(work())


def test_both_may_close_at_once(run: Run) -> None:
    async def work() -> None:
        async with Pair() as (a, b):
            a.send([b"x"])
            await asyncio.gather(a.close(), b.close(), a.close())
            assert a.is_closed
            assert b.is_closed

    run(work())


def test_a_cancelled_waiter_leaves_the_session_alone(run: Run) -> None:
    async def work() -> None:
        async with Pair() as (a, b):
            for wait in (a.closed, a.receive(), a.drain(5.0)):
                task = asyncio.ensure_future(wait)
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            a.send([b"x"])
            assert await b.receive() == [b"x"]
            assert not a.is_closed

    run(work())


def test_a_cancelled_open_leaves_nothing_behind(run: Run) -> None:
    async def work() -> None:
        accepted: list[Session] = []
        listener = await serve_sessions(LOOPBACK, SECRET, accepted.append, lost_limit_s=0.05)
        for turns in range(25):
            task = asyncio.ensure_future(open_session(listener.address, SECRET))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                await task.result().close()
        for session in accepted:
            await session.closed
        await listener.close()

    run(work())
