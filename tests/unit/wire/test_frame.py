"""Frames arrive as they were sent, or not at all (W-3)."""

from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.errors import FrameDamaged, MessageTooLarge
from danaus.wire.frame import (
    FIXED_BYTES,
    MAX_PARTS,
    Buffer,
    Frame,
    FrameParser,
    Kind,
    encode_head,
    flat,
)

PARTS = st.lists(st.binary(max_size=300), max_size=5)
FRAMES = st.lists(
    st.tuples(st.sampled_from(Kind), PARTS, st.integers(0, 2**64 - 1), st.integers(0, 2**63)),
    min_size=1,
    max_size=6,
)


def encoded(parts: list[Buffer], kind: Kind = Kind.MESSAGE, number: int = 0, ack: int = 0) -> bytes:
    return b"".join([encode_head(kind, parts, number=number, ack=ack), *parts])


def sealed(fixed: bytes) -> bytes:
    """Return a head with a fitting checksum, whatever it says."""
    return fixed + struct.pack("<Q", xxhash.xxh3_64_intdigest(fixed))


def fill(parser: FrameParser, stream: bytes, sizes: list[int]) -> list[Frame]:
    """Feed as a socket would: into the parser's own space, in portions of these sizes."""
    frames, at, turn = [], 0, 0
    while at < len(stream):
        space = parser.space()
        count = min(len(space), sizes[turn % len(sizes)], len(stream) - at)
        space[:count] = stream[at : at + count]
        frames += parser.filled(count)
        at, turn = at + count, turn + 1
    return frames


@given(FRAMES, st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_frames_arrive_in_whatever_portions(frames: list, sizes: list[int]) -> None:
    stream = b"".join(encoded(parts, kind, n, ack) for kind, parts, n, ack in frames)
    parser = FrameParser("peer")
    got = fill(parser, stream, sizes)
    assert [(f.kind, f.parts, f.number, f.ack) for f in got] == frames
    assert parser.between_frames
    assert [f.parts for f in FrameParser("peer").feed(stream)] == [f[1] for f in frames]


@pytest.mark.parametrize("size", [32 << 10, 64 << 10, 200_000, 3_000_000])
@pytest.mark.parametrize("portion", [7_001, 65_536, 1 << 20])
def test_large_parts_are_received_in_place(size: int, portion: int) -> None:
    big = bytes(range(256)) * (size // 256 + 1)
    parts: list[Buffer] = [b"first", big, b"", big[: size // 2], b"last"]
    stream = encoded([b"small"]) + encoded(parts, number=7) + encoded([b"after"])
    got = fill(FrameParser("peer"), stream, [portion])
    assert [frame.parts for frame in got] == [[b"small"], parts, [b"after"]]


def test_each_part_is_memory_of_its_own() -> None:
    (frame,) = FrameParser("peer").feed(encoded([b"one", b"two"]))
    frame.parts[0][0] = 0
    frame.parts[0] += b"more"
    assert frame.parts[1] == b"two"


def test_the_number_of_parts_is_limited() -> None:
    parts: list[Buffer] = [b""] * MAX_PARTS
    (frame,) = FrameParser("peer").feed(encoded(parts))
    assert len(frame.parts) == MAX_PARTS
    with pytest.raises(MessageTooLarge, match="parts"):
        encoded([b""] * (MAX_PARTS + 1))


def test_the_size_is_limited_at_both_ends() -> None:
    with pytest.raises(MessageTooLarge, match="101 bytes"):
        encode_head(Kind.MESSAGE, [b"x" * 101], max_frame_bytes=100)
    encode_head(Kind.MESSAGE, [b"x" * 100], max_frame_bytes=100)
    for parts in ([b"x" * 101], [b"x" * 100, b"x"], [b"x" * 100_000]):
        with pytest.raises(FrameDamaged, match="100 at most"):
            FrameParser("peer", 100).feed(encoded(parts))
    # Nothing is set aside for what a head claims.
    claim = struct.pack("<4sBBHQQQQ", b"dnF1", 1, 0, 1, 0, 0, 0, 1 << 62)
    with pytest.raises(FrameDamaged, match="at most"):
        FrameParser("peer").feed(sealed(claim))
    claims = struct.pack("<4sBBHQQQQQ", b"dnF1", 1, 0, 2, 0, 0, 0, 1 << 63, 1 << 63)
    with pytest.raises(FrameDamaged, match="at most"):
        FrameParser("peer").feed(sealed(claims))


@given(FRAMES, st.integers(0, 10_000), st.integers(1, 255), st.integers(1, 500))
def test_one_changed_byte_is_noticed(frames: list, where: int, change: int, size: int) -> None:
    stream = bytearray(b"".join(encoded(parts, kind, n, a) for kind, parts, n, a in frames))
    stream[where % len(stream)] ^= change
    parser, got = FrameParser("peer"), []
    try:
        got = fill(parser, bytes(stream), [size])
    except FrameDamaged:
        pass
    # What was whole before the damage may have arrived; of the rest nothing.
    assert [(f.kind, f.parts, f.number, f.ack) for f in got] == frames[: len(got)]
    assert len(got) < len(frames)


@given(FRAMES, st.integers(1, 10_000))
def test_a_stream_that_stops_delivers_whole_frames_only(frames: list, cut: int) -> None:
    stream = b"".join(encoded(parts, kind, n, a) for kind, parts, n, a in frames)
    cut %= len(stream)
    parser = FrameParser("peer")
    got = parser.feed(stream[:cut])
    assert [(f.kind, f.parts, f.number, f.ack) for f in got] == frames[: len(got)]
    assert len(got) < len(frames)
    assert parser.feed(stream[cut:])


@given(st.binary(min_size=1, max_size=400), st.integers(0, 4), st.integers(1, 64))
def test_garbage_is_refused_and_stays_refused(garbage: bytes, kept: int, size: int) -> None:
    parser = FrameParser("a stranger")
    try:
        assert fill(parser, b"dnF1"[:kept] + garbage, [size]) == []
    except FrameDamaged:
        with pytest.raises(FrameDamaged, match="a stranger"):
            parser.filled(0)


@pytest.mark.parametrize("sizes", [[1], [1000]])
def test_frames_before_damage_are_delivered_and_damage_is_told(sizes: list[int]) -> None:
    good = encoded([b"good"])
    parser = FrameParser("peer")
    got = []
    with pytest.raises(FrameDamaged):  # noqa: PT012
        got += fill(parser, good + good + b"garbage", sizes)
        assert parser.damage
        parser.filled(0)
    assert parser.damage


@pytest.mark.parametrize(
    "fixed",
    [struct.pack("<4sBBHQQQ", b"dnF1", kind, flags, parts, 0, 0, 0)
     for kind, flags, parts in [(0, 0, 0), (99, 0, 0), (1, 1, 0), (1, 0, MAX_PARTS + 1)]],
)  # fmt: skip
def test_what_a_later_version_might_say_is_refused(fixed: bytes) -> None:
    with pytest.raises(FrameDamaged, match="not known"):
        FrameParser("peer").feed(sealed(fixed))


def test_heads_are_as_long_as_documented() -> None:
    assert len(encode_head(Kind.ACK)) == FIXED_BYTES + 8
    assert len(encode_head(Kind.MESSAGE, [b"a", b"b"])) == FIXED_BYTES + 2 * 8 + 8


def test_buffers_are_flattened_without_a_copy() -> None:
    array = memoryview(bytearray(24)).cast("i", (2, 3))
    part = flat(array)
    assert len(part) == 24
    part[0] = 255  # type: ignore[index]
    assert array[0, 0] == 255
    assert flat(memoryview(b"").cast("B")) == b""
