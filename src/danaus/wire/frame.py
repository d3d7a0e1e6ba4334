"""How a message lies on a connection: a checksummed head, a table of lengths, the parts (W-3).

Layout, little-endian::

    0   magic "dnF1"      4      8   number          8     32  length of each part   8 each
    4   kind              1      16  ack             8     ..  xxh3_64 of all above  8
    5   flags (0)         1      24  xxh3_64 of all  8     ..  the parts, end to end
    6   number of parts   2          parts' bytes

``number`` and ``ack`` belong to sessions; a plain channel leaves them 0.

Owns this layout: writing it, and reading it incrementally into memory that the receiver owns.
Opens no socket: the parser says where the next bytes should be put and is told how many came.

Invariants:
    No length is believed before the head's checksum was checked, and none above the limit at all.
    A large part is received straight into the memory it stays in; a small one is copied once.
    After damage a parser takes nothing more: where the next frame begins is not known.
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import xxhash

from danaus.core.errors import FrameDamaged, MessageTooLarge
from danaus.wire.memory import POOLED_BYTES, received_part

Buffer = bytes | bytearray | memoryview

MAX_PARTS = 4096
DEFAULT_MAX_FRAME_BYTES = 1 << 30
FIXED_BYTES = 32
_FIXED = struct.Struct("<4sBBHQQQ")
_START = struct.Struct("<4sBBH")
_U64 = struct.Struct("<Q")
_MAGIC = b"dnF1"
_SCRATCH_BYTES = 64 * 1024
_DIRECT_BYTES = 32 * 1024
_DAMAGED_PAYLOAD = "the payload's checksum does not fit"
_JOIN_BYTES = 16 * 1024  # up to here copying together beats hashing piece by piece


class Kind(enum.IntEnum):
    """What a frame is; everything but ``MESSAGE`` is spoken between sessions only."""

    MESSAGE = 1
    ACK = 2
    WELCOME = 3
    REFUSED = 4
    CLOSE = 5
    LENT = 6
    RELEASED = 7


_KINDS = {kind.value: kind for kind in Kind}
_ONE_PART_UNSEALED = struct.Struct("<8sQQQQ")
_ONE_PART = struct.Struct("<8sQQQQQ")  # a whole head; what it begins with:
_ONE_PART_BEGIN = {kind: _START.pack(_MAGIC, kind, 0, 1) for kind in Kind}
_ONE_PART_KIND = {begin: kind for kind, begin in _ONE_PART_BEGIN.items()}


class Head(msgspec.Struct, frozen=True, gc=False):
    """What stands before a frame's parts, checked."""

    kind: Kind
    number: int
    ack: int
    lengths: tuple[int, ...]
    payload_hash: int


class Frame(msgspec.Struct, frozen=True):
    """One frame as received; the parts are the receiver's own memory."""

    kind: Kind
    number: int
    ack: int
    parts: list[bytearray]


def _memory(size: int) -> bytearray:
    """Return memory for a part that is received."""
    return bytearray(size) if size < POOLED_BYTES else cast(bytearray, received_part(size))


def flat(part: Buffer) -> Buffer:
    """Return ``part`` as something whose ``len`` is its size in bytes, without a copy."""
    if isinstance(part, memoryview) and (part.format != "B" or part.ndim != 1):
        return part.cast("B") if part.nbytes else b""
    return part


def payload_hash(parts: Sequence[Buffer]) -> int:
    """Return xxh3_64 over the parts' bytes as if they lay end to end."""
    if len(parts) == 1:
        digest: int = xxhash.xxh3_64_intdigest(parts[0])
        return digest
    if not parts:
        return 0
    if sum(map(len, parts)) <= _JOIN_BYTES:
        joined: int = xxhash.xxh3_64_intdigest(b"".join(parts))
        return joined
    running = xxhash.xxh3_64()
    for part in parts:
        running.update(part)
    total: int = running.intdigest()
    return total


def encode_head(
    kind: Kind,
    parts: Sequence[Buffer] = (),
    *,
    number: int = 0,
    ack: int = 0,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> bytes:
    """Return the bytes that go before ``parts`` (which ``flat`` has flattened).

    Raises:
        MessageTooLarge: More parts or bytes than a frame holds.
    """
    count, size = len(parts), sum(map(len, parts))
    if size > max_frame_bytes:
        raise MessageTooLarge(size, max_frame_bytes, "bytes")
    if count > MAX_PARTS:
        raise MessageTooLarge(count, MAX_PARTS, "parts")
    digest = payload_hash(parts)
    if count == 1:
        head = _ONE_PART_UNSEALED.pack(_ONE_PART_BEGIN[kind], number, ack, digest, size)
    else:
        head = _unsealed(count).pack(_MAGIC, kind, 0, count, number, ack, digest, *map(len, parts))
    return head + _U64.pack(xxhash.xxh3_64_intdigest(head))


@functools.lru_cache(maxsize=64)
def _unsealed(num_parts: int) -> struct.Struct:
    """Return the layout of a head but for its checksum."""
    return struct.Struct(f"{_FIXED.format}{num_parts}Q")


def rest_of_head_bytes(fixed: Buffer, peer: str) -> int:
    """Return how many bytes of head follow the first ``FIXED_BYTES``.

    Raises:
        FrameDamaged: These are not the first bytes of a frame.
    """
    magic, kind, flags, num_parts = _START.unpack_from(fixed)
    if magic != _MAGIC:
        raise FrameDamaged(peer, "it does not begin as a frame does")
    if kind not in _KINDS or flags or num_parts > MAX_PARTS:
        raise FrameDamaged(peer, f"kind {kind}, flags {flags}, {num_parts} parts are not known")
    return 8 * int(num_parts) + _U64.size


def decode_head(head: bytes, peer: str, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> Head:
    """Return what a whole head says.

    Raises:
        FrameDamaged: Its checksum does not fit, or it announces more than the limit.
    """
    body = memoryview(head)[: -_U64.size]
    (checksum,) = _U64.unpack_from(head, len(body))
    if xxhash.xxh3_64_intdigest(body) != checksum:
        raise FrameDamaged(peer, "the head's checksum does not fit")
    _, kind, _, num_parts, number, ack, digest = _FIXED.unpack_from(head)
    lengths = struct.unpack_from(f"<{num_parts}Q", head, FIXED_BYTES)
    if sum(lengths) > max_frame_bytes:
        raise FrameDamaged(peer, f"it announces {sum(lengths)} bytes; {max_frame_bytes} at most")
    return Head(_KINDS[kind], number, ack, lengths, digest)


def check_payload(head: Head, parts: Sequence[Buffer], peer: str) -> None:
    """Compare the parts with the head's checksum.

    Raises:
        FrameDamaged: They differ.
    """
    if payload_hash(parts) != head.payload_hash:
        raise FrameDamaged(peer, _DAMAGED_PAYLOAD)


class FrameParser:
    """Reads frames from a stream of bytes that arrives in any portions.

    Use: receive into ``space()``, then call ``filled(n)``; or ``feed`` bytes at hand.  Frames that
    were whole before some damage are still returned; ``damage`` is set then.

    Args:
        peer: Whom to name in errors.
        max_frame_bytes: Largest sum of part lengths that is taken.
    """

    def __init__(self, peer: str, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._peer = peer
        self._limit = max_frame_bytes
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._start = 0  # unread bytes in scratch: [start, end)
        self._end = 0
        self._head: Head | None = None
        self._parts: list[bytearray] = []
        self._part_at = 0  # index of the part being filled
        self._part_end = 0  # bytes of it that are there
        self._direct = False  # the last space() was the part's own memory
        self._running: Any = None  # the hash of a large payload so far, while its bytes are near
        self.damage: FrameDamaged | None = None

    @property
    def between_frames(self) -> bool:
        """Tell whether all bytes so far belong to whole frames."""
        return self._head is None and self._start == self._end

    def space(self) -> memoryview:
        """Return where the next bytes from the connection belong; never empty."""
        if self._head is not None and self._start == self._end:
            part = self._parts[self._part_at]
            if len(part) - self._part_end >= _DIRECT_BYTES:
                self._direct = True
                return memoryview(part)[self._part_end :]
        self._direct = False
        if self._start:
            kept = self._end - self._start
            if kept:
                self._scratch[:kept] = bytes(self._scratch[self._start : self._end])
            self._start, self._end = 0, kept
        return self._scratch[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """Take note that ``count`` bytes were put into ``space()``; return the frames completed.

        Raises:
            FrameDamaged: They are no frames of ours, and none was completed before.
        """
        if self.damage:
            raise self.damage
        frames: list[Frame] = []
        try:
            if self._direct:
                self._took(count)
                self._direct = False
                self._finish_payload(frames)
            else:
                self._end += count
            while self._start < self._end and (self._take_whole(frames) or self._advance(frames)):
                pass
        except FrameDamaged as damage:
            self.damage = damage
            if not frames:
                raise
        return frames

    def feed(self, data: Buffer) -> list[Frame]:
        """Take bytes that were received elsewhere; return the frames completed.

        Raises:
            FrameDamaged: As ``filled``.
        """
        frames: list[Frame] = []
        view = memoryview(data)
        while view and not self.damage:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            view = view[count:]
            frames += self.filled(count)
        return frames

    def _take_whole(self, frames: list[Frame]) -> bool:
        """Take the frame of one part that lies in scratch as a whole, if one does: the usual case.

        Whatever else there is, or is wrong, is left to ``_advance``, which knows what to say.
        """
        start, scratch = self._start, self._scratch
        body = start + _ONE_PART.size
        if self._head is not None or self._end < body:
            return False
        begin, number, ack, digest, length, checksum = _ONE_PART.unpack_from(scratch, start)
        kind, stop = _ONE_PART_KIND.get(begin), body + length
        if kind is None or stop > self._end or length > self._limit:
            return False
        part = bytearray(scratch[body:stop])
        if digest != xxhash.xxh3_64_intdigest(part):
            return False
        if checksum != xxhash.xxh3_64_intdigest(scratch[start : body - _U64.size]):
            return False
        self._start = stop
        frames.append(Frame(kind, number, ack, [part]))
        return True

    def _advance(self, frames: list[Frame]) -> bool:
        """Take one step with what lies in scratch; tell whether another may follow."""
        if self._head is not None:
            self._copy_payload()
            return self._finish_payload(frames)
        available = self._end - self._start
        if available < FIXED_BYTES:
            if available:
                self._check_magic(available)
            return False
        fixed = self._scratch[self._start : self._start + FIXED_BYTES]
        size = FIXED_BYTES + rest_of_head_bytes(fixed, self._peer)
        if available < size:
            return False
        raw = bytes(self._scratch[self._start : self._start + size])
        self._start += size
        self._head = decode_head(raw, self._peer, self._limit)
        self._parts = [_memory(length) for length in self._head.lengths]
        self._part_at = self._part_end = 0
        large = sum(self._head.lengths) > _JOIN_BYTES
        self._running = xxhash.xxh3_64() if large else None
        return self._finish_payload(frames) or self._start < self._end

    def _check_magic(self, available: int) -> None:
        """Refuse a stranger at its first wrong byte: it may never send enough for a head."""
        seen = bytes(self._scratch[self._start : self._start + min(available, len(_MAGIC))])
        if not _MAGIC.startswith(seen):
            raise FrameDamaged(self._peer, "it does not begin as a frame does")

    def _copy_payload(self) -> None:
        while self._part_at < len(self._parts) and self._start < self._end:
            part = self._parts[self._part_at]
            count = min(len(part) - self._part_end, self._end - self._start)
            part[self._part_end : self._part_end + count] = self._scratch[
                self._start : self._start + count
            ]
            self._start += count
            self._took(count)
            if self._part_end < len(part):
                return
            self._part_at += 1
            self._part_end = 0

    def _took(self, count: int) -> None:
        """Take note that ``count`` bytes came to the part that is being filled."""
        start, self._part_end = self._part_end, self._part_end + count
        if self._running is not None:
            self._running.update(memoryview(self._parts[self._part_at])[start : self._part_end])

    def _finish_payload(self, frames: list[Frame]) -> bool:
        """Deliver the frame if its last byte is there; tell whether it was."""
        parts = self._parts
        while self._part_at < len(parts) and self._part_end == len(parts[self._part_at]):
            self._part_at += 1
            self._part_end = 0
        if self._head is None or self._part_at < len(parts):
            return False
        head, self._head, self._parts = self._head, None, []
        if self._running is None:
            check_payload(head, parts, self._peer)
        elif self._running.intdigest() != head.payload_hash:
            raise FrameDamaged(self._peer, _DAMAGED_PAYLOAD)
        frames.append(Frame(head.kind, head.number, head.ack, parts))
        return True
