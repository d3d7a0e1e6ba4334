"""Frames over one open stream, on an asyncio loop.

Owns the stream once started: reading into the parser's memory, writing without copying what is
large, and the order of both.  Asks the loop only for readiness (``add_reader``), so that it
behaves the same on asyncio's own loops and on uvloop.  ``push`` may come from any thread: on the
loop's own the frames of one turn go together, from another each goes at once.

Invariants:
    Callbacks to the receiver come from the loop, or from whoever reads after ``share_reading``,
    one at a time, and never from inside ``push`` or ``close``.
    ``transport_lost`` is called exactly once, unless the owner closed the transport itself.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from danaus.core.errors import ChannelClosed, DanausError, FrameDamaged
from danaus.wire.frame import (
    DEFAULT_MAX_FRAME_BYTES,
    Buffer,
    Frame,
    FrameParser,
    Kind,
    encode_head,
)
from danaus.wire.own_loop import OwnLoop
from danaus.wire.reading import SharedReading
from danaus.wire.resume import Fds
from danaus.wire.stream import Carrier, Stream, UnixStream

_JOIN_BYTES = 16 * 1024  # up to here copying a frame together beats a longer system call
_READS_PER_TURN = 16
_WRITE_PER_TURN_BYTES = 8 << 20
_log = logging.getLogger("danaus.wire")


class Receiver(Protocol):
    """Who is told what a transport sees."""

    def frames_arrived(self, frames: list[Frame]) -> None:
        """Take these frames, in order."""
        ...

    def transport_lost(self, error: DanausError) -> None:
        """Learn that nothing more will come or go."""
        ...


class Transport(Protocol):
    """What a channel needs from below."""

    peer: str

    def start(self, receiver: Receiver) -> None:
        """Begin to deliver to ``receiver``."""
        ...

    def push(
        self, kind: Kind, parts: Sequence[Buffer], *, number: int, ack: int, fds: Fds = ()
    ) -> int:
        """Queue a frame of flat parts; return the mark that ``written`` waits for."""
        ...

    async def written(self, mark: int) -> None:
        """Wait until everything up to ``mark`` was handed over and its buffers are free."""
        ...

    def keep_copies(self) -> None:
        """Copy what is still queued, so that its owners may have their buffers back."""
        ...

    def share_reading(self, reading: SharedReading) -> bool:
        """Deliver on whichever thread reads there; false if that is not possible here."""
        ...

    @property
    def carries_fds(self) -> bool:
        """Tell whether descriptors can go with a frame."""
        ...

    def take_fd(self) -> int:
        """Return the next descriptor that came along; it is the caller's."""
        ...

    def pause(self) -> None:
        """Stop reading."""
        ...

    def resume(self) -> None:
        """Read again."""
        ...

    def close(self) -> None:
        """Drop what is queued and end."""
        ...


class SocketTransport:
    """A transport over an open stream.

    Args:
        stream: The stream; the transport closes it.
        peer: The other end in words.
        max_frame_bytes: Largest frame to take or to send.
    """

    def __init__(
        self,
        stream: Stream,
        peer: str,
        *,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self.peer = peer
        self._stream = stream
        self._fd = stream.fileno()
        self._own = OwnLoop()
        self._loop = self._own.loop
        self._writing = threading.Lock()
        self._max_frame_bytes = max_frame_bytes
        self._parser = FrameParser(peer, max_frame_bytes)
        self._receiver: Receiver | None = None
        self._is_reading = False
        self._shared: SharedReading | None = None
        self._ended: DanausError | None = None
        self._broken: ChannelClosed | None = None
        self._out: collections.deque[Buffer] = collections.deque()
        self._queued_bytes = 0  # ever
        self._written_bytes = 0  # ever
        self._awaiting_room = False
        self._corked = False
        self._waiters: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()

    # -- reading ---------------------------------------------------------------------------

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.resume()

    def share_reading(self, reading: SharedReading) -> bool:
        if not self._stream.any_thread:
            return False
        was_reading = self._is_reading
        self.pause()
        self._shared = reading
        if was_reading:
            self.resume()
        return True

    def pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            if self._shared is None:
                self._loop.remove_reader(self._fd)
            else:
                self._shared.remove(self._fd)

    def resume(self) -> None:
        if self._is_reading or self._ended is not None:
            return
        self._is_reading = True
        if self._shared is None:
            self._loop.add_reader(self._fd, self._readable)
            self._read_pending()
        else:
            self._shared.add(self._fd, self._readable)

    def _read_pending(self) -> None:
        """Read soon what has arrived already, if the stream holds something that no poll tells."""
        if self._stream.pending:
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._is_reading:  # not paused or ended since
            self._readable()

    def _readable(self) -> None:
        for _ in range(_READS_PER_TURN):
            space = self._parser.space()
            try:
                count = self._stream.recv_into(space)
                if not count:
                    self._lose(ChannelClosed(self.peer, self._how_it_left()))
                    return
                frames = self._parser.filled(count)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(ChannelClosed(self.peer, error.strerror or str(error)))
                return
            except FrameDamaged as damage:
                self._lose(damage)
                return
            self._pass_on(frames)
            if not self._is_reading or count < len(space):
                return
        self._read_pending()

    def _pass_on(self, frames: list[Frame]) -> None:
        if frames and self._receiver is not None:
            self._receiver.frames_arrived(frames)
        if self._parser.damage and self._ended is None:
            self._lose(self._parser.damage)

    def _how_it_left(self) -> str:
        where = "" if self._parser.between_frames else " in the middle of a frame"
        return f"the peer closed it{where}"

    # -- writing ---------------------------------------------------------------------------

    @property
    def carries_fds(self) -> bool:
        return isinstance(self._stream, UnixStream)

    def take_fd(self) -> int:
        if not isinstance(self._stream, UnixStream) or not self._stream.fds:
            raise FrameDamaged(self.peer, "a descriptor that it speaks of did not come along")
        return self._stream.fds.popleft()

    def push(
        self, kind: Kind, parts: Sequence[Buffer], *, number: int, ack: int, fds: Fds = ()
    ) -> int:
        head = encode_head(
            kind, parts, number=number, ack=ack, max_frame_bytes=self._max_frame_bytes
        )
        size = len(head) + sum(map(len, parts))
        with self._writing:
            if self._ended is not None or self._broken is not None:
                raise ChannelClosed(self.peer, why_ended(self._ended or self._broken))
            if size <= _JOIN_BYTES and not fds:
                self._out.append(b"".join((head, *parts)))
            else:
                self._out.append(self._carrying(head, fds))
                self._out.extend(part for part in parts if len(part))
            self._queued_bytes = mark = self._queued_bytes + size
            if self._may_go_now() and not self._awaiting_room:
                self._write_out()
        return mark

    def _carrying(self, head: bytes, fds: Fds) -> bytes:
        if not fds or not isinstance(self._stream, UnixStream):
            return head
        carrier = Carrier(head)
        carrier.fds = fds
        self._stream.carries = True
        return carrier

    def _may_go_now(self) -> bool:
        """Tell whether a frame is to be written at once; if not, that is seen to."""
        is_loops = self._own.is_current
        if not is_loops and self._stream.any_thread:
            return True
        # The first frame of a turn of the loop goes at once, the others of it together.
        if self._corked:
            return False
        self._corked = True
        self._own.soon(self._uncork)
        return is_loops

    async def written(self, mark: int) -> None:
        if self._written_bytes >= mark:
            return
        if self._ended is not None:
            raise ChannelClosed(self.peer, why_ended(self._ended))
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((mark, future))
        self._tell_written()  # it may have been written by another thread meanwhile
        await future

    def keep_copies(self) -> None:
        with self._writing:
            self._out = collections.deque(
                item if isinstance(item, bytes) else bytes(item) for item in self._out
            )

    def _uncork(self) -> None:
        self._corked = False
        if self._out and not self._awaiting_room and self._ended is None:
            self._flush()

    def _flush(self) -> None:
        with self._writing:
            self._write_out()

    def _write_out(self) -> None:
        """Write what the socket takes; with ``_writing`` held, on any thread."""
        budget = _WRITE_PER_TURN_BYTES
        out = self._out
        try:
            while out and budget > 0:
                sent = self._stream.send(out)
                budget -= sent
                self._written_bytes += sent
                if len(out) == 1 and len(out[0]) == sent:
                    out.clear()
                else:
                    self._consume(sent)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._break(error)
        if bool(out) != self._awaiting_room:
            self._awaiting_room = bool(out)
            self._own.now_or_soon(self._watch_room)
        if self._waiters:
            self._own.soon(self._tell_written)

    def _watch_room(self) -> None:
        """Have the loop call when the socket takes more, for as long as something waits."""
        if self._awaiting_room and self._ended is None:
            self._loop.add_writer(self._fd, self._flush)
        elif self._ended is None:
            self._loop.remove_writer(self._fd)

    def _break(self, error: OSError) -> None:
        """Note that nothing more can be sent; what the peer sent before it left is still read."""
        if self._broken is None:
            self._broken = ChannelClosed(self.peer, error.strerror or str(error))
            self._out.clear()
            self._own.soon(self._read_out)

    def _read_out(self) -> None:
        self.resume()
        with self._alone():
            self._readable()
        if self._is_reading:
            # Came to the end of what had arrived, or of a turn's share of it.
            if self._stream.has_more():
                self._loop.call_soon(self._read_out)
            elif self._broken is not None:
                self._lose(self._broken)

    def _alone(self) -> contextlib.AbstractContextManager[object]:
        return self._shared.alone if self._shared is not None else contextlib.nullcontext()

    def _consume(self, sent: int) -> None:
        out = self._out
        while sent:
            first = out[0]
            if len(first) > sent:
                out[0] = memoryview(first)[sent:]
                break
            sent -= len(first)
            out.popleft()

    def _tell_written(self) -> None:
        while self._waiters and self._waiters[0][0] <= self._written_bytes:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)

    # -- ending ----------------------------------------------------------------------------

    def close(self) -> None:
        self._end(ChannelClosed(self.peer, "this side closed it"))

    def _lose(self, error: DanausError) -> None:
        if not self._own.is_current:
            self.pause()
            self._own.soon(self._lose, error)
        elif self._ended is None:
            if isinstance(error, FrameDamaged):
                _log.warning("%s", error)
            self._end(error)
            if self._receiver is not None:
                self._receiver.transport_lost(error)

    def _end(self, error: DanausError) -> None:
        if self._ended is not None:
            return
        self.pause()
        with self._alone():
            pass  # whoever was reading when it was paused has done
        with self._writing:  # nobody writes to a descriptor that is another file's by then
            self._ended = error
            if self._awaiting_room:
                self._awaiting_room = False
                self._loop.remove_writer(self._fd)
            self._stream.close()
            self._out.clear()
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(ChannelClosed(self.peer, why_ended(error)))
        self._waiters.clear()


def why_ended(ended: DanausError | None) -> str:
    if isinstance(ended, ChannelClosed | FrameDamaged):
        return ended.why
    return str(ended) if ended else "it has no other end"
