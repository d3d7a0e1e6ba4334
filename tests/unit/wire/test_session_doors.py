"""Which session a new connection belongs to, without a socket."""

from __future__ import annotations

import asyncio

import pytest

from danaus.core.errors import ChannelClosed
from danaus.wire.channel import Channel, memory_pair
from danaus.wire.frame import Frame, Kind
from danaus.wire.session import _HELLO, Session, SessionHello, SessionListener

SESSION_ID = b"s" * 16


class Door:
    """A listener whose connections are made by hand."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.listener = SessionListener(
            self.sessions.append, lost_limit_s=10.0, max_frame_bytes=1000
        )

    async def close(self) -> None:
        for session in self.sessions:
            session.end("the test is over")
        await self.listener.close()

    async def knock(self, attempt: int, *, was_open: bool, received: int = 0) -> Channel:
        """Return the dialler's end of a new connection."""
        said = SessionHello(SESSION_ID, attempt, was_open, received, b"hello")
        ours, theirs = memory_pair(_HELLO.encode(said))
        self.listener.accept(theirs)
        return ours


async def first_frame(channel: Channel) -> Frame:
    async with asyncio.timeout(5.0):
        return await channel.recv_frame()


def test_a_late_connection_of_an_older_attempt_changes_nothing() -> None:
    async def work() -> None:
        door = Door()
        newer = await door.knock(2, was_open=False)
        assert (await first_frame(newer)).kind is Kind.WELCOME
        (session,) = door.sessions
        session.send([b"one"])
        assert (await first_frame(newer)).number == 1
        newer.push([b"x"], number=1, ack=1)
        assert await session.receive() == [b"x"]
        older = await door.knock(1, was_open=False)
        again = await door.knock(2, was_open=True, received=1)
        session.send([b"two"])
        assert (await first_frame(newer)).number == 2
        assert not session.is_closed
        for late in (older, again):
            with pytest.raises(ChannelClosed):
                await first_frame(late)
        newest = await door.knock(3, was_open=True, received=1)
        welcome = await first_frame(newest)
        assert (welcome.kind, welcome.ack) == (Kind.WELCOME, 1)
        assert (await first_frame(newest)).parts == [b"two"]
        assert len(door.sessions) == 1
        await door.close()

    asyncio.run(work())


def test_a_session_that_has_just_ended_is_not_resumed() -> None:
    async def work() -> None:
        door = Door()
        await first_frame(await door.knock(1, was_open=False))
        door.sessions[0].end("over")
        channel = await door.knock(2, was_open=True)
        assert (await first_frame(channel)).kind is Kind.REFUSED
        await door.close()

    asyncio.run(work())


def test_a_session_nobody_knows_is_refused() -> None:
    async def work() -> None:
        door = Door()
        refused = await first_frame(await door.knock(1, was_open=True))
        assert refused.kind is Kind.REFUSED
        assert b"restarted" in refused.parts[0]
        assert door.sessions == []
        await door.close()

    asyncio.run(work())


def test_a_peer_that_forgot_what_it_acknowledged_ends_the_session() -> None:
    async def work() -> None:
        door = Door()
        channel = await door.knock(1, was_open=False)
        await first_frame(channel)
        (session,) = door.sessions
        session.send([b"one"])
        await first_frame(channel)
        channel.push([], Kind.ACK, ack=1)
        async with asyncio.timeout(5.0):
            await session.drain(5.0)
        await door.knock(2, was_open=True, received=0)
        assert "cannot be resumed" in (await session.closed).why
        await door.close()

    asyncio.run(work())
