"""Large buffers between processes of one host: written once into memory that both map (W-1).

Owns ``Lender``, the sending end, ``Borrower``, the receiving end, ``Loans``, both of one end of a
session, and the memory between them.  How a descriptor travels is ``stream``'s work.

A segment is memory without a name (``core.unnamed_memory``): it goes with the last process that
maps it, however that ends.  It cannot shrink or grow: where a system has no such memory nothing is
lent, and large buffers take the socket like others.  While it is lent its lender does not write to
it; the borrower may.  Once nothing of the borrower's refers to it any more it goes back, and is
lent again: what costs most in fresh memory is that the kernel clears it.

Invariants:
    A buffer is in its segment before ``lend`` returns: the owner may write to it at once.
    A segment is lent to one borrower at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Callable, Sequence

import msgspec

from danaus.core.errors import FrameDamaged
from danaus.core.unnamed_memory import keeps_its_size, unnamed_memory
from danaus.wire.frame import Buffer, Kind, flat
from danaus.wire.memory import ask_for_huge_pages

LEND_BYTES = 256 * 1024
"""From here on a segment beats the socket."""
_MOST_LENT = 64  # a process has few descriptors
_MOST_MAPPED_BYTES = 256 << 20
_GRAIN_BYTES = 2 << 20  # a huge page
_COPY_BYTES = 4 << 20  # other threads may run after so many


class Lent(msgspec.Struct, frozen=True, array_like=True):
    """Says of one part of a message that it lies in a segment.

    Args:
        at: Which part.
        segment: Which segment.
        size: Of the part, in bytes.
        total: Of the segment, whose descriptor comes along; 0: it is known.
    """

    at: int
    segment: int
    size: int
    total: int


_RELEASED = struct.Struct("<Q?")  # which segment; whether it may be lent again
_TABLE = msgspec.msgpack.Decoder(tuple[Lent, ...])


class Loan:
    """A part of a message that was put into a segment."""

    __slots__ = ("segment", "size")

    def __init__(self, segment: Segment, size: int) -> None:
        self.segment, self.size = segment, size


Part = Buffer | Loan


class Segment:
    """Shared memory, as its maker has it.

    Raises:
        OSError: None is to be had.
    """

    def __init__(self, number: int, total: int) -> None:
        self.number, self.total = number, total
        self.is_known = False  # its descriptor was sent
        self.fd = unnamed_memory("danaus-lent", total)
        try:
            self._map = _mapped(self.fd, total)
        except OSError:
            os.close(self.fd)
            raise

    def fill(self, buffer: Buffer) -> None:
        """Copy ``buffer`` to the beginning."""
        source, size = memoryview(buffer), len(buffer)
        with memoryview(self._map) as here:
            for start in range(0, size, _COPY_BYTES):
                end = min(start + _COPY_BYTES, size)
                here[start:end] = source[start:end]

    def close(self) -> None:
        """Give up what this process has of it."""
        os.close(self.fd)
        self._map.close()


def _mapped(fd: int, total: int) -> mmap.mmap:
    found = mmap.mmap(fd, total)
    ask_for_huge_pages(found)
    return found


class Lender:
    """What one end of a session lends; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._free: list[Segment] = []
        self._lent: dict[int, Segment] = {}
        self._is_closed = False

    def lend(self, parts: Sequence[Buffer]) -> list[Part]:
        """Return the parts with the large ones in segments, as far as there are any to be had."""
        lent: list[Part] = []
        for each in parts:
            part = flat(each)
            segment = self._take(len(part)) if len(part) >= LEND_BYTES else None
            if segment is None:
                lent.append(part)
            else:
                segment.fill(part)
                lent.append(Loan(segment, len(part)))
        return lent

    def take_back(self, number: int, *, again: bool) -> None:
        """Learn that a segment is lent no longer.

        Args:
            number: Which.
            again: The borrower still maps it: it may be lent again.
        """
        with self._lock:
            segment = self._lent.pop(number, None)
            if segment is not None and again:
                self._free.append(segment)
                return
        if segment is not None:
            segment.close()

    def give_up(self, parts: Sequence[Part]) -> None:
        """Take back what was lent for a message that is not sent."""
        for part in parts:
            if isinstance(part, Loan):
                self.take_back(part.segment.number, again=part.segment.is_known)

    def close(self) -> None:
        """Let go of all; what is lent stays with whoever has it."""
        with self._lock:
            self._is_closed = True
            segments, self._free, self._lent = [*self._free, *self._lent.values()], [], {}
        for segment in segments:
            segment.close()

    def _take(self, size: int) -> Segment | None:
        total = -(-size // _GRAIN_BYTES) * _GRAIN_BYTES
        with self._lock:
            if self._is_closed or len(self._lent) >= _MOST_LENT:
                return None
            fitting = [each for each in self._free if total <= each.total <= 2 * total]
            if fitting:
                segment = min(fitting, key=lambda each: each.total)
                self._free.remove(segment)
            else:
                try:
                    segment = Segment(next(self._numbers), total)
                except OSError:  # no memory, no descriptors: the socket will do
                    return None
            self._lent[segment.number] = segment
            return segment


def tabled(parts: Sequence[Part]) -> tuple[Kind, list[Buffer], tuple[int, ...]]:
    """Return what to send for ``parts``: a table of loans last, and new segments' descriptors."""
    if len(parts) == 1 and isinstance(parts[0], bytes):  # the usual case
        return Kind.MESSAGE, [parts[0]], ()
    table: list[Lent] = []
    fds: list[int] = []
    sent: list[Buffer] = []
    for at, part in enumerate(parts):
        if not isinstance(part, Loan):
            sent.append(flat(part))
            continue
        segment = part.segment
        table.append(Lent(at, segment.number, part.size, 0 if segment.is_known else segment.total))
        if not segment.is_known:
            segment.is_known = True
            fds.append(segment.fd)
    if not table:
        return Kind.MESSAGE, sent, ()
    return Kind.LENT, [*sent, msgspec.msgpack.encode(table)], tuple(fds)


class Borrower:
    """What one end of a session has borrowed.

    Args:
        peer: Whom to name in errors.
        give_back: Called with a segment's number, from any thread, once nothing refers to it.
    """

    def __init__(self, peer: str, give_back: Callable[[int], None]) -> None:
        self._peer = peer
        self._give_back = give_back
        self._maps: dict[int, mmap.mmap] = {}

    def open(
        self, parts: Sequence[bytearray], take_fd: Callable[[], int], *, is_news: bool
    ) -> list[Buffer]:
        """Return a message's parts, those that are lent among them.

        Args:
            parts: What came, the table last.
            take_fd: Returns the next descriptor that came along.
            is_news: Whether the message will be read; if not, it only takes its descriptors.

        Raises:
            FrameDamaged: The table does not fit.
        """
        try:
            table = _TABLE.decode(parts[-1])
        except (msgspec.DecodeError, IndexError) as error:
            raise FrameDamaged(self._peer, f"no table of what is lent: {error}") from error
        opened: list[Buffer] = list(parts[:-1])
        for lent in table:
            if lent.total:
                self._learn(lent, take_fd())
            if is_news:
                opened.insert(lent.at, self._view(lent))
        return opened

    def _learn(self, lent: Lent, fd: int) -> None:
        try:
            if lent.segment not in self._maps:
                if os.fstat(fd).st_size < lent.total or not keeps_its_size(fd):
                    raise FrameDamaged(self._peer, "it lends what could shrink")
                self._maps[lent.segment] = _mapped(fd, lent.total)
        except OSError as error:
            raise FrameDamaged(self._peer, f"what it lends cannot be mapped: {error}") from error
        finally:
            os.close(fd)

    def _view(self, lent: Lent) -> memoryview:
        found = self._maps.get(lent.segment)
        if found is None or not 0 < lent.size <= len(found):
            raise FrameDamaged(self._peer, f"it has not lent {lent.size} bytes of that segment")
        memory = (ctypes.c_ubyte * lent.size).from_buffer(found)
        weakref.finalize(memory, self._give_back, lent.segment).atexit = False
        return memoryview(memory).cast("B")

    def keep(self, number: int) -> bool:
        """Decide whether a segment that goes back stays mapped, to be lent again."""
        total = sum(map(len, self._maps.values()))
        if total <= _MOST_MAPPED_BYTES:
            return True
        self._maps.pop(number, None)
        return False

    def close(self) -> None:
        """Borrow nothing more; what was borrowed stays as long as something refers to it."""
        self._maps.clear()


class Loans:
    """What one end of a session lends and borrows.

    Args:
        peer: Whom to name in errors.
        say: Tells the peer, on the loop, what goes back.
    """

    def __init__(self, peer: str, say: Callable[[bytes], None]) -> None:
        self._peer = peer
        self._say = say
        self._loop = asyncio.get_running_loop()
        self.lender = Lender()
        self.borrower = Borrower(peer, self._release)

    def taken_back(self, parts: Sequence[Buffer]) -> None:
        """Learn from the peer what it gives back.

        Raises:
            FrameDamaged: It does not say so.
        """
        if len(parts) != 1 or len(parts[0]) != _RELEASED.size:
            raise FrameDamaged(self._peer, "it gives back nothing that is known")
        number, again = _RELEASED.unpack(parts[0])
        self.lender.take_back(number, again=again)

    def close(self) -> None:
        """Lend and borrow nothing more."""
        self.lender.close()
        self.borrower.close()

    def _release(self, number: int) -> None:
        # The collector may call this in the middle of anything: it takes no lock of ours.
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._give_back, number)

    def _give_back(self, number: int) -> None:
        self._say(_RELEASED.pack(number, self.borrower.keep(number)))
