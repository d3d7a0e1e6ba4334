"""A session outlives its connection, wherever that is cut (A-3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.procs.wire.harness import Relay, Run

from danaus.core.errors import ChannelClosed, HandshakeRefused
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, open_session, serve_sessions

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)
Served = tuple[SessionListener, asyncio.Queue[Session]]
MESSAGES = [b"%d" % n + b"x" * (n % 7) for n in range(6)]


@contextlib.asynccontextmanager
async def served(
    lost_limit_s: float = 10.0,
) -> AsyncIterator[tuple[SessionListener, asyncio.Queue]]:
    accepted: asyncio.Queue[Session] = asyncio.Queue()
    listener = await serve_sessions(
        LOOPBACK, SECRET, accepted.put_nowait, lost_limit_s=lost_limit_s
    )
    try:
        yield listener, accepted
    finally:
        await listener.close()


async def echo(session: Session) -> None:
    async for parts in session:
        session.send([b"back", *parts])


async def converse(target: Address, cuts: list[int | None], *, abrupt: bool) -> Relay:
    """Hold a conversation over connections that are cut; nothing may be lost or repeated."""
    async with Relay(target, cuts, abrupt=abrupt) as relay:
        session = await open_session(relay.address, SECRET, lost_limit_s=20.0, open_limit_s=20.0)
        for message in MESSAGES[:3]:
            session.send([message])
        got = [await session.receive()]
        for message in MESSAGES[3:]:
            session.send([message])
        while len(got) < len(MESSAGES):
            got.append(await session.receive())
        await session.close(5.0)
        assert got == [[b"back", message] for message in MESSAGES]
    return relay


@pytest.fixture(params=["tcp", "tls"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "tls":
        request.getfixturevalue("far_loopback")
    return request.param


@pytest.mark.parametrize("abrupt", [False, True], ids=["end", "reset"])
def test_it_may_be_cut_at_every_byte(run: Run, abrupt: bool, kind: str) -> None:
    async def work() -> None:
        listener = await serve_sessions(LOOPBACK, SECRET, echo)
        whole = await converse(listener.address, [], abrupt=abrupt)
        # Under TLS most of the bytes are those of its handshake.
        step = (3 if abrupt else 2) if kind == "tcp" else 13
        offsets = list(range(0, whole.passed_bytes[0], step))
        assert len(offsets) > 200
        for start in range(0, len(offsets), 40):
            async with asyncio.TaskGroup() as group:
                for offset in offsets[start : start + 40]:
                    group.create_task(converse(listener.address, [offset], abrupt=abrupt))
        await listener.close()

    run(work())


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 600), min_size=2, max_size=8), abrupt=st.booleans())
def test_it_may_be_cut_again_and_again(cuts: list[int | None], abrupt: bool) -> None:
    async def work() -> None:
        listener = await serve_sessions(LOOPBACK, SECRET, echo)
        async with asyncio.timeout(30.0):
            await converse(listener.address, cuts, abrupt=abrupt)
        await listener.close()

    asyncio.run(work())


def test_large_messages_both_ways_survive_cuts(run: Run, kind: str) -> None:
    big = [bytes([n]) * 3_000_000 for n in range(4)]
    cuts = [1_000_000, 5_000_001, 2_500_000, 70_000]

    async def work() -> None:
        async with (
            served() as (listener, accepted),
            Relay(listener.address, cuts, abrupt=True) as relay,
        ):
            a = await open_session(relay.address, SECRET)
            b = await accepted.get()
            for part in big:
                a.send([part, b"and", part[:100]])
                b.send([part[:1_000_000]])
            for part in big:
                assert await b.receive() == [part, b"and", part[:100]]
                assert await a.receive() == [part[:1_000_000]]
            assert relay.num_connections == len(cuts) + 1
            await a.drain(5.0)
            assert a.kept_bytes == 0
            await a.close()

    run(work())


def test_both_ends_learn_of_a_cut_at_once_and_of_the_return(run: Run) -> None:
    """P-2: a closed connection is a reason to look."""

    async def work() -> None:
        async with (
            served() as (listener, accepted),
            Relay(listener.address, [], abrupt=False) as relay,
        ):
            a = await open_session(relay.address, SECRET)
            b = await accepted.get()
            seen: asyncio.Queue[str] = asyncio.Queue()
            for name, session in (("a", a), ("b", b)):
                session.on_disconnect = lambda why, name=name: seen.put_nowait(f"{name} lost")
                session.on_reconnect = lambda name=name: seen.put_nowait(f"{name} back")
            relay.cut_all()
            assert {await seen.get(), await seen.get()} == {"a lost", "b lost"}
            a.send([b"while away"])
            assert {await seen.get(), await seen.get()} == {"a back", "b back"}
            assert await b.receive() == [b"while away"]
            await a.close()

    run(work())


def test_a_session_that_stays_away_too_long_ends_at_both_ends(run: Run) -> None:
    async def work() -> None:
        async with served(lost_limit_s=0.1) as (listener, accepted):
            async with Relay(listener.address, [], abrupt=False) as relay:
                a = await open_session(relay.address, SECRET, lost_limit_s=0.1)
                b = await accepted.get()
                a.send([b"before"])
                await a.drain(5.0)
            waits = asyncio.ensure_future(a.drain(5.0))
            a.send([b"lost"])
            for session in (a, b):
                assert "within 0.1 s" in (await session.closed).why
            assert await b.receive() == [b"before"]
            with pytest.raises(ChannelClosed, match=r"within 0\.1 s"):
                await b.receive()
            with pytest.raises(ChannelClosed, match=r"within 0\.1 s"):
                [parts async for parts in a]
            with pytest.raises(ChannelClosed):
                a.send([b"too late"])
            with pytest.raises(ChannelClosed):
                await waits
            assert listener.sessions == []

    run(work())


def test_a_server_that_was_restarted_does_not_know_the_session(run: Run) -> None:
    """Calls must not hang on a peer that has forgotten them."""

    async def work() -> None:
        async with served() as (first, _), Relay(first.address, [], abrupt=False) as relay:
            session = await open_session(relay.address, SECRET, lost_limit_s=20.0)
            async with served() as (second, _):
                relay._target = second.address
                session.send([b"lost"])
                relay.cut_all()
                assert "restarted" in (await session.closed).why
                with pytest.raises(ChannelClosed, match="restarted"):
                    await session.receive()

    run(work())


def test_a_server_with_another_secret_ends_the_session(run: Run) -> None:
    async def work() -> None:
        async with served() as (first, _), Relay(first.address, [], abrupt=False) as relay:
            session = await open_session(relay.address, SECRET, lost_limit_s=20.0)
            second = await serve_sessions(LOOPBACK, Secret.generate(), lambda _: None)
            relay._target = second.address
            relay.cut_all()
            assert "secret" in (await session.closed).why
            with pytest.raises(HandshakeRefused):
                await open_session(second.address, SECRET)
            await second.close()

    run(work())


def test_many_sessions_come_back_at_one_moment(run: Run) -> None:
    async def work() -> None:
        listener = await serve_sessions(LOOPBACK, SECRET, echo)
        async with Relay(listener.address, [], abrupt=True) as relay:
            sessions = await asyncio.gather(
                *(open_session(relay.address, SECRET) for _ in range(60))
            )
            for round_number in range(3):
                relay.cut_all()
                for session in sessions:
                    session.send([b"%d" % round_number])
                for session in sessions:
                    assert await session.receive() == [b"back", b"%d" % round_number]
            assert len(listener.sessions) == 60
            await asyncio.gather(*(session.close() for session in sessions))
        await listener.close()

    run(work())


def test_closing_while_disconnected_ends_in_time(run: Run) -> None:
    async def work() -> None:
        async with served() as (listener, accepted):
            async with Relay(listener.address, [], abrupt=False) as relay:
                a = await open_session(relay.address, SECRET)
                b = await accepted.get()
            a.send([b"never arrives"])
            b.send([b"never arrives"])
            await asyncio.gather(a.close(0.05), b.close(0.05))
            assert a.is_closed
            assert b.is_closed

    run(work())
