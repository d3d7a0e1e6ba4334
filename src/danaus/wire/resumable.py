"""Messages delivered once and in order while both processes live, over connections that break.

Owns sessions: numbering, acknowledging, reconnecting, sending again (A-3).  What is kept and what
is a repetition is decided by ``resume.Window``; bytes are ``channel``'s work; which session a new
connection belongs to is found in ``session``.

Invariants:
    A session ends exactly once, with one reason, and then nobody is left waiting for it.
    The newest connection of a session is the one that counts; an older one is closed.
    A damaged frame ends the session: nothing that came over that connection is trusted (W-3).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import cast

from danaus.core.errors import ChannelClosed, DanausError, FrameDamaged, MessageTooLarge
from danaus.wire.acknowledging import Acknowledging
from danaus.wire.channel import Channel
from danaus.wire.codec import own
from danaus.wire.draining import Drainers
from danaus.wire.frame import DEFAULT_MAX_FRAME_BYTES, MAX_PARTS, Buffer, Frame, Kind
from danaus.wire.lending import Loans, Part, tabled
from danaus.wire.own_loop import OwnLoop
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.reading import SharedReading
from danaus.wire.receiving import Receiving
from danaus.wire.resume import Fds, Window

LOST_LIMIT_S = 10.0
CLOSE_LIMIT_S = 1.0
_NUMBERED = (Kind.MESSAGE, Kind.LENT, Kind.RELEASED)
_log = logging.getLogger("danaus.wire")


class Session(Receiving):
    """One end of a session; made by ``open_session`` and ``serve_sessions``.

    All on one loop, except ``lend``, ``give_up`` and ``send``, from any thread, and ``on_message``
    after ``share_reading``.  Messages go to ``on_message`` if it is set, else to ``receive``.

    Attributes:
        peer: The other end in words.
        hello: What the dialler said of itself (both ends have it).
        reading: Who reads it, where that may be another thread than its loop's.
        on_disconnect: Called when a connection is lost, with the reason: look at once (P-2).
        on_reconnect: Called when the session goes on over a new connection.
    """

    def __init__(
        self,
        peer: str,
        hello: bytes,
        *,
        lost_limit_s: float = LOST_LIMIT_S,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        super().__init__()
        self.peer = peer
        self.hello = hello
        self.on_disconnect: Callable[[str], None] | None = None
        self.on_reconnect: Callable[[], None] | None = None
        self.reading: SharedReading | None = None
        self._shared: SharedReading | None = None
        self._own = OwnLoop()
        self._loop = self._own.loop
        self._closed: asyncio.Future[ChannelClosed] = self._loop.create_future()
        self._lost_limit_s = lost_limit_s
        self._max_frame_bytes = max_frame_bytes
        self._window = Window(peer)
        self._acks = Acknowledging(self._window, functools.partial(self._push_now, Kind.ACK))
        self._loans = Loans(peer, self._say_released)
        self._sending = threading.Lock()  # numbers are given and frames pushed in one order
        self._unanswered_since = 0.0
        self._channel: Channel | None = None
        self._was_open = False
        self._closing = self._is_failing = False
        self._tasks = OwnedTasks(f"session with {peer}")
        self._lost_timer: asyncio.TimerHandle | None = None
        self._drainers = Drainers()

    # -- for users -------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Tell whether there is a connection now; messages are taken without one too."""
        return self._channel is not None

    @property
    def is_closed(self) -> bool:
        """Tell whether the session has ended."""
        return self._closed.done()

    @property
    def closed(self) -> asyncio.Future[ChannelClosed]:
        """A future whose result is why the session ended; a cancelled waiter does no harm."""
        return asyncio.shield(self._closed)

    @property
    def kept_bytes(self) -> int:
        """Bytes sent and not yet acknowledged."""
        return self._window.kept_bytes

    @property
    def unanswered_s(self) -> float:
        """Seconds for which the peer has acknowledged nothing although it should have.

        A cut that drops everything closes no connection: this is what can be seen of it.
        """
        return time.monotonic() - self._unanswered_since if self._window.kept_bytes else 0.0

    def keep_for(self, lost_limit_s: float) -> None:
        """End the session only after so many seconds without a connection."""
        self._lost_limit_s = lost_limit_s

    def share_reading(self, reading: SharedReading | None) -> None:
        """Have ``on_message`` called on whichever thread reads there, one call at a time."""
        self._shared, channel = reading, self._channel
        if channel is not None and reading is not None:
            self.reading = reading if channel.share_reading(reading) else None

    def drop_connection(self, why: str) -> None:
        """Go on over a new connection: whoever dialled dials again, nothing is lost (A-3)."""
        channel = self._channel
        if channel is not None:
            channel.close()
            self._lost(channel, ChannelClosed(self.peer, why))

    def lend(self, parts: Sequence[Buffer]) -> Sequence[Part]:
        """Return the parts for ``send``, large ones in memory that a peer of this host maps.

        From any thread; ``give_up`` what is not sent.
        """
        channel = self._channel
        if channel is None or not channel.carries_fds:
            return parts
        return self._loans.lender.lend(parts)

    def give_up(self, parts: Sequence[Part]) -> None:
        """Have back what was lent for a message that is not sent."""
        self._loans.lender.give_up(parts)

    def send(self, parts: Sequence[Part]) -> int:
        """Send one message, from any thread; never waits.  Returns its number.

        The parts stay borrowed until the peer has acknowledged the message: see ``drain`` and
        ``keep_copies``.

        Raises:
            ChannelClosed: The session has ended or is being closed.
            MessageTooLarge: Nothing was sent.
        """
        kind, sent, fds = tabled(parts)
        size = sum(map(len, sent))
        if size > self._max_frame_bytes:
            raise MessageTooLarge(size, self._max_frame_bytes, "bytes")
        if len(sent) > MAX_PARTS:
            raise MessageTooLarge(len(sent), MAX_PARTS, "parts")
        return self._send(sent, size, kind, fds=fds)

    def _send(self, parts: Sequence[Buffer], size: int, kind: Kind, *, fds: Fds) -> int:
        with self._sending:
            if self._closing or self._closed.done():
                raise self._reason()
            if not self._window.kept_bytes:
                self._unanswered_since = time.monotonic()
            number = self._window.send(parts, 1 + size, kind=kind, fds=fds)
            self._push(kind, parts, number, fds=fds)
        return number

    async def drain(self, limit_s: float, below_bytes: int = 0) -> None:
        """Wait until at most ``below_bytes`` are unacknowledged (0: every buffer is free again).

        Args:
            limit_s: Seconds to wait at most.
            below_bytes: What may remain.

        Raises:
            ChannelClosed: The session ended before.
            TimeoutError: ``limit_s`` passed.
        """
        if self._window.kept_bytes <= below_bytes:
            return
        if self._closed.done():
            raise self._reason()
        await self._drainers.wait(below_bytes, limit_s, lambda: self._window.kept_bytes)

    def keep_copies(self, number: int) -> None:
        """Give back the buffers of message ``number``: from here on a copy is sent.

        For a caller that no longer waits for its call and may write to its memory again.
        """
        with self._sending:
            sent = self._window.kept(number)
            if sent is not None:
                sent.parts = own(sent.parts)
                if self._channel is not None:
                    self._channel.keep_copies()

    async def close(self, limit_s: float = CLOSE_LIMIT_S) -> None:
        """End the session, after what was sent has arrived or ``limit_s`` seconds have passed."""
        if not self._closed.done():
            with self._sending:
                self._closing = True
                self._push(Kind.CLOSE, (), 0)
            try:
                async with asyncio.timeout(limit_s):
                    await self.closed
            except TimeoutError:
                pass
            finally:
                self.end("this side closed it", clean=True)
        await self._tasks.close()

    def end(self, why: str, *, clean: bool = False) -> None:
        """End the session now, whatever is still under way.

        Args:
            why: The reason that everyone who waits is given.
            clean: An end that was meant: iteration just stops.
        """
        if self._closed.done():
            return
        self._clean = clean
        reason = ChannelClosed(self.peer, why)
        self._closed.set_result(reason)
        self._acks.close()
        if self._lost_timer is not None:
            self._lost_timer.cancel()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._tasks.cancel()
        self._inbox.end(reason)
        self._loans.close()
        self._drainers.fail(reason)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "connected" if self._channel else "disconnected"
        return f"Session({self.peer}, {state})"

    # -- connections come and go -----------------------------------------------------------

    def attach(self, channel: Channel, received_by_peer: int, welcome: Kind | None = None) -> None:
        """Go on over ``channel``, whose other end has every message up to ``received_by_peer``.

        Args:
            channel: The new connection; an older one is closed.
            received_by_peer: From the peer's greeting.
            welcome: The frame to send first, if any.
        """
        if self._closed.done():
            channel.close()
            return
        if self._lost_timer is not None:
            self._lost_timer.cancel()
            self._lost_timer = None
        if self._channel is not None:
            self._channel.close()
        try:
            with self._sending:
                self._go_on_over(channel, received_by_peer, welcome)
        except FrameDamaged as broken:
            self.end(f"it cannot be resumed: {broken.why}")
            return
        if self._inbox.is_full:
            channel.pause()
        resumed, self._was_open = self._was_open, True
        channel.attach(
            functools.partial(self._frames, channel), functools.partial(self._lost, channel)
        )
        self.share_reading(self._shared)
        self._drainers.wake(self._window.kept_bytes)
        if resumed and self._channel is channel and self.on_reconnect is not None:
            self.on_reconnect()

    def _go_on_over(self, channel: Channel, received_by_peer: int, welcome: Kind | None) -> None:
        self._channel = channel
        again = self._window.resumed(received_by_peer)
        if welcome is not None:
            self._push(welcome, (), 0)
        for sent in again:
            self._push(sent.kind, sent.parts, sent.number, fds=sent.fds)
        if self._closing:
            self._push(Kind.CLOSE, (), 0)

    def _lost(self, channel: Channel, error: DanausError) -> None:
        if channel is not self._channel or self._closed.done():
            return
        self._channel = None
        if isinstance(error, FrameDamaged):
            self.end(str(error))
            return
        why = error.why if isinstance(error, ChannelClosed) else str(error)
        if self._closing and not self._window.kept_bytes:
            self.end("this side closed it", clean=True)
            return
        self._lost_timer = self._loop.call_later(self._lost_limit_s, self._give_up, why)
        self._disconnected()
        if self.on_disconnect is not None:
            self.on_disconnect(why)

    def _give_up(self, why: str) -> None:
        self.end(f"{why}; no connection came back within {self._lost_limit_s:.1f} s")

    def _disconnected(self) -> None:
        """Do what this end does about a lost connection: the accepting end waits."""

    # -- frames ----------------------------------------------------------------------------

    def _push(self, kind: Kind, parts: Sequence[Buffer], number: int, *, fds: Fds = ()) -> None:
        """Push a frame; with ``_sending`` held."""
        channel = self._channel
        if channel is not None:
            try:
                channel.push(parts, kind, number=number, ack=self._window.take_ack(), fds=fds)
            except ChannelClosed:
                pass  # just lost: that is reported by itself, and the window keeps the message

    def _frames(self, channel: Channel, frames: list[Frame]) -> None:
        is_loops = self._own.is_current
        try:
            for frame in () if self._is_failing else frames:
                if frame.kind is Kind.CLOSE and not is_loops:
                    channel.pause()
                    self._own.soon(self._talk, frame)
                    return
                if channel is self._channel:
                    self._frame(channel, frame)
        except FrameDamaged as damage:
            _log.warning("%s", damage)
            self._fail(channel, str(damage))
        except BaseException:
            self._fail(channel, "what receives its messages failed")
            raise
        if channel is self._channel:
            self._acks.received()

    def _fail(self, channel: Channel, why: str) -> None:
        """End because of what was received, on whichever thread."""
        if not self._own.is_current:
            self._is_failing = True
            channel.pause()
        self._own.now_or_soon(self.end, why)

    def _frame(self, channel: Channel, frame: Frame) -> None:
        kind, parts, window = frame.kind, frame.parts, self._window
        is_message = kind in _NUMBERED
        size = 1 + sum(map(len, parts))
        with self._sending:
            freed = frame.ack > window.last_acked
            if freed:
                window.acked(frame.ack)
                self._unanswered_since = time.monotonic()
            is_news = is_message and window.arrived(frame.number, size)
        if freed and self._drainers:
            self._own.now_or_soon(self._drainers.wake, window.kept_bytes)
        if kind is Kind.LENT:
            opened = self._loans.borrower.open(parts, channel.take_fd, is_news=is_news)
            parts = cast("list[bytearray]", opened)  # memory of the receiver's like any other
        if is_news and kind is Kind.RELEASED:
            self._loans.taken_back(parts)
        elif is_news:
            self._take(parts, size)
        elif not is_message:
            self._talk(frame)

    def _talk(self, frame: Frame) -> None:
        """Take what sessions say to each other."""
        if frame.kind is Kind.CLOSE:
            if not self._closing:
                self._push_now(Kind.CLOSE)
            who = "this side" if self._closing else "the peer"
            self.end(f"{who} closed it", clean=True)
        elif frame.kind is not Kind.ACK:
            raise FrameDamaged(self.peer, f"{frame.kind.name} in the middle of a session")

    def _say_released(self, said: bytes) -> None:
        with contextlib.suppress(ChannelClosed):
            self._send([said], len(said), Kind.RELEASED, fds=())

    def _push_now(self, kind: Kind) -> None:
        with self._sending:
            self._push(kind, (), 0)

    def _inbox_full(self, is_full: bool) -> None:
        if self._channel is not None:
            (self._channel.pause if is_full else self._channel.resume)()

    def _reason(self) -> ChannelClosed:
        why = self._closed.result().why if self._closed.done() else "this side is closing it"
        return ChannelClosed(self.peer, why)
