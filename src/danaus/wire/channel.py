"""Authenticated, ordered messages between two processes, for as long as one connection lasts.

Owns dialling, listening and ``Channel``.  Every channel's peer has proven that it holds the job's
secret before its first frame is read (W-2).  Outliving a lost connection is ``session``'s work.

Invariants:
    Every connection that does not finish its handshake in time is closed; it disturbs no other.
    A damaged frame ends its own channel, with one line in the log (W-3).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from danaus.core.errors import (
    ChannelClosed,
    DanausError,
    DeadlinePassed,
    FrameDamaged,
)
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.frame import DEFAULT_MAX_FRAME_BYTES, Buffer, Frame, Kind, flat
from danaus.wire.greeting import Greeting, resolve
from danaus.wire.inbox import Inbox
from danaus.wire.memory_transport import MemoryTransport
from danaus.wire.opening import Accepting, Dialling, Opening
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.reading import SharedReading
from danaus.wire.resume import Fds
from danaus.wire.secret import Secret
from danaus.wire.tls import identity
from danaus.wire.transport import SocketTransport, Transport

HANDSHAKE_LIMIT_S = 5.0
_MAX_UNPROVEN = 512
_ACCEPTS_PER_TURN = 64
_ACCEPT_PAUSE_S = 0.1
_log = logging.getLogger("danaus.wire")

OnFrames = Callable[[list[Frame]], None]
OnLost = Callable[[DanausError], None]


class Channel:
    """One authenticated connection; made by ``dial``, ``listen`` or ``memory_pair``.

    One task at a time may receive; any may send.  All on the loop that made the channel, except
    ``push``, from any thread, and what ``share_reading`` says.

    Attributes:
        peer: The other end in words, for messages.
        hello: What the other end said of itself in the handshake.
    """

    def __init__(self, transport: Transport, hello: bytes) -> None:
        self.peer = transport.peer
        self.hello = hello
        self._transport = transport
        self._inbox: Inbox[Frame] = Inbox(self._full)
        self._ended: DanausError | None = None
        self._on_frames: OnFrames | None = None
        self._on_lost: OnLost | None = None
        transport.start(self)

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing more can be sent; what has arrived may still be received."""
        return self._ended is not None

    async def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message; returns once its bytes are the kernel's and the buffers free again.

        Messages of several tasks keep the order in which ``send`` was called.

        Raises:
            ChannelClosed: The connection is gone; whether the message arrived is not known.
            MessageTooLarge: Nothing was sent.
        """
        await self._transport.written(self.push([flat(part) for part in parts]))

    def push(
        self,
        parts: Sequence[Buffer],
        kind: Kind = Kind.MESSAGE,
        *,
        number: int = 0,
        ack: int = 0,
        fds: Fds = (),
    ) -> int:
        """Queue one frame without waiting; its large buffers stay borrowed until it is written.

        The parts are flat: see ``frame.flat``.

        Raises:
            ChannelClosed: The connection is gone.
            MessageTooLarge: Nothing was queued.
        """
        return self._transport.push(kind, parts, number=number, ack=ack, fds=fds)

    @property
    def carries_fds(self) -> bool:
        """Tell whether descriptors can go with a frame: both ends are on one host."""
        return self._transport.carries_fds

    def take_fd(self) -> int:
        """Return the next descriptor that came along; it is the caller's.

        Raises:
            FrameDamaged: None came.
        """
        return self._transport.take_fd()

    def keep_copies(self) -> None:
        """Give all borrowed buffers back: what is still queued is copied."""
        self._transport.keep_copies()

    async def recv(self) -> list[bytearray]:
        """Return the next message's parts, in memory that is the caller's.

        Raises:
            ChannelClosed: The connection is gone and everything that arrived was received.
            FrameDamaged: The peer sent what is no frame, or no message.
        """
        frame = await self.recv_frame()
        if frame.kind is not Kind.MESSAGE:
            self.close()
            raise FrameDamaged(self.peer, f"{frame.kind.name} outside of a session")
        return frame.parts

    async def recv_frame(self) -> Frame:
        """Return the next frame of whatever kind; raises as ``recv``."""
        return await self._inbox.take()

    def share_reading(self, reading: SharedReading) -> bool:
        """Have the callbacks of ``attach`` called on whichever thread reads there.

        Returns:
            Whether that is possible: TLS is read on the loop only.
        """
        return self._transport.share_reading(reading)

    def attach(self, on_frames: OnFrames, on_lost: OnLost) -> None:
        """Hand this and all later frames, and the end, to callbacks instead of ``recv``."""
        self._on_frames, self._on_lost = on_frames, on_lost
        if waiting := self._inbox.take_now():
            on_frames(waiting)
        if self._ended is not None and self._on_lost is not None:
            on_lost(self._ended)

    def pause(self) -> None:
        """Stop reading: the peer comes to wait when the kernel's buffers are full."""
        self._transport.pause()

    def resume(self) -> None:
        """Read again."""
        self._transport.resume()

    def close(self) -> None:
        """End the channel now.  What ``send`` returned for still arrives; what is queued does not.

        Over TCP it arrives only if the peer sends nothing meanwhile: the kernel answers that with
        a reset.  Who cannot know uses a session, whose ends agree on the end.  Callbacks of
        ``attach`` are not called any more.
        """
        self._on_frames = self._on_lost = None
        if self._ended is None:
            self._ended = ChannelClosed(self.peer, "this side closed it")
            self._transport.close()
            self._inbox.end(self._ended)

    def frames_arrived(self, frames: list[Frame]) -> None:
        """Take frames from the transport."""
        if self._on_frames is not None:
            self._on_frames(frames)
        elif self._ended is None:
            for frame in frames:
                self._inbox.put(frame, 1 + sum(map(len, frame.parts)))

    def transport_lost(self, error: DanausError) -> None:
        """Learn from the transport that it ended."""
        if self._ended is None:
            self._ended = error
            self._inbox.end(error)
            if self._on_lost is not None:
                self._on_lost(error)

    def _full(self, is_full: bool) -> None:
        (self._transport.pause if is_full else self._transport.resume)()

    def __repr__(self) -> str:
        return f"Channel({self.peer}{', closed' if self.is_closed else ''})"


def memory_pair(
    hello: bytes = b"", max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
) -> tuple[Channel, Channel]:
    """Return the two ends of a channel inside this loop: the dialler's, the acceptor's."""
    dialler = MemoryTransport("memory (acceptor)", max_frame_bytes)
    acceptor = MemoryTransport("memory (dialler)", max_frame_bytes)
    dialler.other, acceptor.other = acceptor, dialler
    return Channel(dialler, b""), Channel(acceptor, hello)


def _opened(opening: Opening, max_frame_bytes: int) -> Channel:
    """Return the channel that a finished handshake opens."""
    transport = SocketTransport(opening.stream, opening.peer, max_frame_bytes=max_frame_bytes)
    return Channel(transport, opening.peer_hello)


def _settle(future: asyncio.Future[None]) -> Callable[[Greeting, DanausError | None], None]:
    def settle(_: Greeting, error: DanausError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return settle


async def dial(
    address: Address,
    secret: Secret,
    hello: bytes = b"",
    *,
    limit_s: float = HANDSHAKE_LIMIT_S,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> Channel:
    """Open a channel: resolve, connect, TLS unless it is this machine, prove to each other.

    Args:
        address: Where the peer listens.
        secret: The job's secret.
        hello: What to say of oneself; on this machine it travels in the clear.
        limit_s: Seconds for all of it.
        max_frame_bytes: Largest frame to take or to send.

    Raises:
        AddressRefused: Nobody listens there.
        HandshakeRefused: Whoever listens does not hold the secret.
        ChannelClosed: It left in the middle.
        DeadlinePassed: It did not answer in time.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit_s):
            endpoints = await resolve(address)
            done: asyncio.Future[None] = loop.create_future()
            opening = Dialling(endpoints, secret, hello, peer=str(address))
            greeting = Greeting(opening, limit_s=limit_s, on_done=_settle(done))
            try:
                await done
            except asyncio.CancelledError:
                greeting.abandon(ChannelClosed(str(address), "this side gave up"))
                opening.close()  # also when it had succeeded at that very moment
                raise
    except TimeoutError as error:
        raise DeadlinePassed(f"an answer from {address}", limit_s) from error
    return _opened(opening, max_frame_bytes)


class Listener:
    """Accepts channels until it is closed; made by ``listen``.

    Attributes:
        address: Where it is bound, with the real port.
    """

    def __init__(
        self,
        bound: sockets.BoundSocket,
        secret: Secret,
        on_channel: Callable[[Channel], object],
        *,
        handshake_limit_s: float,
        max_frame_bytes: int,
    ) -> None:
        self.address = bound.address
        self._bound = bound
        self._secret = secret
        self._on_channel = on_channel
        self._handshake_limit_s = handshake_limit_s
        self._max_frame_bytes = max_frame_bytes
        self._loop = asyncio.get_running_loop()
        self._unproven: dict[Greeting, None] = {}
        self._tasks = OwnedTasks(f"listener at {self.address}")
        self._closed = False
        self._listen()

    async def close(self) -> None:
        """Stop accepting, drop unfinished handshakes, cancel handlers.  Channels live on."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._bound.sock.fileno())
            self._bound.close()
            for greeting in list(self._unproven):
                greeting.abandon(ChannelClosed(greeting.peer, "the listener was closed"))
        await self._tasks.close()

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._bound.sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock = self._bound.accept()
            except OSError as error:
                # No descriptors left, most likely: waiting connections keep; try again soon.
                _log.warning("cannot accept at %s: %s", self.address, error)
                self._loop.remove_reader(self._bound.sock.fileno())
                self._loop.call_later(_ACCEPT_PAUSE_S, self._listen)
                return
            if sock is None:
                return
            if len(self._unproven) >= _MAX_UNPROVEN:
                oldest = next(iter(self._unproven))
                oldest.abandon(ChannelClosed(oldest.peer, "too many unfinished handshakes"))
            greeting = Greeting(
                Accepting(sock, self._secret),
                limit_s=self._handshake_limit_s,
                on_done=self._greeted,
            )
            self._unproven[greeting] = None

    def _greeted(self, greeting: Greeting, error: DanausError | None) -> None:
        self._unproven.pop(greeting, None)
        if isinstance(error, ChannelClosed):
            _log.debug("%s: %s", self.address, error)  # a probe, most often
        elif error is not None:
            _log.warning("%s: %s", self.address, error)
        else:
            self._hand_over(_opened(greeting.opening, self._max_frame_bytes))

    def _hand_over(self, channel: Channel) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(channel.close)
            result = self._on_channel(channel)
            if inspect.iscoroutine(result):
                self._tasks.start(_handle(channel, result), f"handler of {channel.peer}")
            stack.pop_all()


async def _handle(channel: Channel, work: Coroutine[Any, Any, Any]) -> None:
    """Run a handler; a channel whose handler failed or was cancelled is of no more use."""
    with contextlib.ExitStack() as stack:
        stack.callback(channel.close)
        await work
        stack.pop_all()


async def listen(
    address: Address,
    secret: Secret,
    on_channel: Callable[[Channel], object],
    *,
    handshake_limit_s: float = HANDSHAKE_LIMIT_S,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> Listener:
    """Accept channels at ``address``.

    Args:
        address: Where to bind; port 0 takes a free one.
        secret: The job's secret.
        on_channel: Called with each channel whose peer has proven itself.  If it returns a
            coroutine, the listener runs and owns it; should that fail, the channel is closed.
        handshake_limit_s: Seconds that a peer has to prove itself.
        max_frame_bytes: Largest frame to take or to send.

    Raises:
        AddressRefused: The address cannot be bound.
        ConfigError: Other machines may dial it, and the user's own TLS authority cannot be used.
    """
    if not address.is_loopback:
        identity(secret)  # now, not when somebody dials
    bound = sockets.BoundSocket(address)
    return Listener(
        bound,
        secret,
        on_channel,
        handshake_limit_s=handshake_limit_s,
        max_frame_bytes=max_frame_bytes,
    )
