"""Where sessions begin and find their new connections: ``open_session``, ``serve_sessions``.

How one begins: the dialler names its session (16 random bytes), whether it was open before, and
the last message it received; the acceptor answers ``WELCOME`` with the last it received, or
``REFUSED`` when it does not know the session: it ended there, or that process was restarted.
Then each end sends again what the other lacks.

Invariants:
    A session that was refused is over: its messages may have been lost with the other process.
    A connection counts only if its attempt is newer than the one that the session has.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from danaus.core.errors import (
    AddressRefused,
    ChannelClosed,
    DeadlinePassed,
    FrameDamaged,
    HandshakeRefused,
)
from danaus.wire.address import Address
from danaus.wire.channel import HANDSHAKE_LIMIT_S, Channel, Listener, dial, listen
from danaus.wire.codec import Codec
from danaus.wire.frame import DEFAULT_MAX_FRAME_BYTES, Kind
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.resumable import LOST_LIMIT_S, Session
from danaus.wire.secret import Secret

__all__ = [
    "LOST_LIMIT_S",
    "OPEN_LIMIT_S",
    "Session",
    "SessionListener",
    "open_session",
    "serve_sessions",
]

OPEN_LIMIT_S = 5.0
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_log = logging.getLogger("danaus.wire")

Dial = Callable[[bytes], Awaitable[Channel]]


class SessionHello(msgspec.Struct, frozen=True, tag="session"):
    """What the dialler of a session says in the handshake."""

    session_id: bytes
    attempt: int
    was_open: bool
    received: int
    hello: bytes


_HELLO: Codec[SessionHello] = Codec(SessionHello)


class DialledSession(Session):
    """The end that opened the session, and opens each new connection.

    Args:
        dial_with: Opens a channel with the given hello, within a limit of its own.
    """

    def __init__(
        self, peer: str, hello: bytes, dial_with: Dial, *, lost_limit_s: float, max_frame_bytes: int
    ) -> None:
        super().__init__(peer, hello, lost_limit_s=lost_limit_s, max_frame_bytes=max_frame_bytes)
        self._dial_with = dial_with
        self._session_id = secrets.token_bytes(16)
        self._attempt = 0

    async def connect(self) -> None:
        """Open one connection and go on over it.

        Raises:
            AddressRefused, ChannelClosed, DeadlinePassed: Not reached; trying again may help.
            HandshakeRefused, FrameDamaged: Trying again will not help.
        """
        self._attempt += 1
        hello = SessionHello(
            self._session_id, self._attempt, self._was_open, self._window.received, self.hello
        )
        channel = await self._dial_with(_HELLO.encode(hello))
        with contextlib.ExitStack() as stack:
            stack.callback(channel.close)
            try:
                async with asyncio.timeout(HANDSHAKE_LIMIT_S):
                    answer = await channel.recv_frame()
            except TimeoutError as error:
                raise DeadlinePassed(f"a welcome from {self.peer}", HANDSHAKE_LIMIT_S) from error
            if answer.kind is Kind.REFUSED:
                raise HandshakeRefused(self.peer, answer.parts[0].decode(errors="replace"))
            if answer.kind is not Kind.WELCOME:
                raise FrameDamaged(self.peer, f"{answer.kind.name} instead of a welcome")
            stack.pop_all()
        self.attach(channel, answer.ack)

    async def connect_within(self, limit_s: float) -> None:
        """Try ``connect`` until it works; after ``limit_s`` seconds raise its last error."""
        last: AddressRefused | ChannelClosed | DeadlinePassed | None = None
        pause_s = _FIRST_PAUSE_S
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        await self.connect()
                        return
                    except (AddressRefused, ChannelClosed, DeadlinePassed) as error:
                        last = error
                    # Spread, so that many who lost one peer do not come back at one moment.
                    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except TimeoutError as error:
            raise last or DeadlinePassed(f"a session with {self.peer}", limit_s) from error

    def _disconnected(self) -> None:
        self._tasks.start(self._reconnect(), "reconnect")

    async def _reconnect(self) -> None:
        try:
            # The timer of the lost connection ends the session, and this task, a little earlier.
            await self.connect_within(2 * self._lost_limit_s)
        except (AddressRefused, ChannelClosed, DeadlinePassed) as error:
            self.end(str(error))
        except (HandshakeRefused, FrameDamaged) as error:
            self.end(error.why, clean=self._closing)


async def open_session(
    address: Address,
    secret: Secret,
    hello: bytes = b"",
    *,
    lost_limit_s: float = LOST_LIMIT_S,
    open_limit_s: float = OPEN_LIMIT_S,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> Session:
    """Open a session, and keep it open over lost connections.

    Args:
        address: Where ``serve_sessions`` listens.
        secret: The job's secret.
        hello: What to say of oneself; on this machine it travels in the clear.
        lost_limit_s: Seconds without a connection after which the session ends.
        open_limit_s: Seconds to try at first; an address that nobody listens at is tried again.
        max_frame_bytes: Largest message to take or to send.

    Raises:
        AddressRefused, ChannelClosed, DeadlinePassed: The last failure within ``open_limit_s``.
        HandshakeRefused: Whoever listens does not hold the secret.
    """

    async def dial_with(session_hello: bytes) -> Channel:
        return await dial(address, secret, session_hello, max_frame_bytes=max_frame_bytes)

    session = DialledSession(
        str(address), hello, dial_with, lost_limit_s=lost_limit_s, max_frame_bytes=max_frame_bytes
    )
    with contextlib.ExitStack() as stack:
        stack.callback(session.end, "it was never opened")
        await session.connect_within(open_limit_s)
        stack.pop_all()
    return session


class SessionListener:
    """Accepts sessions until it is closed; made by ``serve_sessions``."""

    def __init__(
        self, on_session: Callable[[Session], object], *, lost_limit_s: float, max_frame_bytes: int
    ) -> None:
        self._on_session = on_session
        self._lost_limit_s = lost_limit_s
        self._max_frame_bytes = max_frame_bytes
        self._sessions: dict[bytes, tuple[Session, int]] = {}
        self._tasks = OwnedTasks("session listener")
        self._listener: Listener | None = None

    @property
    def address(self) -> Address:
        """Where it is bound, with the real port."""
        assert self._listener is not None
        return self._listener.address

    @property
    def sessions(self) -> list[Session]:
        """The sessions that have not ended."""
        return [session for session, _ in self._sessions.values() if not session.is_closed]

    async def listen(self, address: Address, secret: Secret) -> None:
        """Begin to accept at ``address``."""
        self._listener = await listen(
            address, secret, self.accept, max_frame_bytes=self._max_frame_bytes
        )

    async def close(self) -> None:
        """Stop accepting and close every session."""
        if self._listener is not None:
            await self._listener.close()
        async with asyncio.TaskGroup() as group:
            for session in self.sessions:
                if not session.is_connected:  # and never will be again
                    session.end("this side closed it", clean=True)
                group.create_task(session.close())
        await self._tasks.close()

    def accept(self, channel: Channel) -> None:
        """Find or begin the session that a new connection belongs to."""
        try:
            said = _HELLO.decode(channel.hello, channel.peer)
        except FrameDamaged as damage:
            _log.warning("%s", damage)
            channel.close()
            return
        known, attempt = self._sessions.get(said.session_id, (None, 0))
        if known is not None and known.is_closed:
            known = None
        if known is not None and said.attempt > attempt:
            self._sessions[said.session_id] = known, said.attempt
            known.attach(channel, said.received, Kind.WELCOME)
        elif known is not None:
            channel.close()
        elif said.was_open or attempt:
            why = b"it does not know this session: it ended there, or the process was restarted"
            with contextlib.suppress(ChannelClosed):
                channel.push([why], Kind.REFUSED)
            channel.close()
        else:
            self._begin(channel, said)

    def _begin(self, channel: Channel, said: SessionHello) -> None:
        session = Session(
            channel.peer,
            said.hello,
            lost_limit_s=self._lost_limit_s,
            max_frame_bytes=self._max_frame_bytes,
        )
        self._sessions[said.session_id] = session, said.attempt
        session.closed.add_done_callback(lambda _: self._sessions.pop(said.session_id, None))
        session.attach(channel, said.received, Kind.WELCOME)
        with contextlib.ExitStack() as stack:
            stack.callback(session.end, "its handler failed")
            result = self._on_session(session)
            if inspect.iscoroutine(result):
                self._tasks.start(_handle(session, result), f"handler of {session.peer}")
            stack.pop_all()


async def _handle(session: Session, work: Coroutine[Any, Any, Any]) -> None:
    """Run a handler; a session whose handler failed or was cancelled is of no more use."""
    with contextlib.ExitStack() as stack:
        stack.callback(session.end, "its handler failed")
        await work
        stack.pop_all()


async def serve_sessions(
    address: Address,
    secret: Secret,
    on_session: Callable[[Session], object],
    *,
    lost_limit_s: float = LOST_LIMIT_S,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> SessionListener:
    """Accept sessions at ``address``.

    Args:
        address: Where to bind; port 0 takes a free one.
        secret: The job's secret.
        on_session: Called once with each new session, before its first message is read.  If it
            returns a coroutine, the listener runs and owns it; should that fail, the session ends.
        lost_limit_s: Seconds without a connection after which a session ends.
        max_frame_bytes: Largest message to take or to send.

    Raises:
        AddressRefused: The address cannot be bound.
    """
    listener = SessionListener(
        on_session, lost_limit_s=lost_limit_s, max_frame_bytes=max_frame_bytes
    )
    await listener.listen(address, secret)
    return listener
