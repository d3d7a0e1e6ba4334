"""What comes over a connection in any order closes that session at most (W-3, A-3)."""

from __future__ import annotations

import asyncio
import logging

from hypothesis import given
from hypothesis import strategies as st
from tools import fuzz

from danaus.wire.channel import memory_pair
from danaus.wire.frame import Kind
from danaus.wire.resumable import Session

FRAMES = st.lists(
    st.tuples(
        st.sampled_from(Kind),
        st.lists(st.binary(max_size=20), max_size=3),
        st.integers(0, 6),
        st.integers(0, 2),
    ),
    max_size=12,
)
"""Repeated, reordered, out of place: numbers and acknowledgements of a short session."""


async def played(frames: list) -> None:
    liar, accepted = memory_pair()
    session, got = Session("a liar", b""), []
    session.on_message = got.append
    session.attach(accepted, 0)
    bystander, other = Session("a bystander", b""), Session("its other end", b"")
    for end, channel in zip((bystander, other), memory_pair(), strict=True):
        end.attach(channel, 0)
    next_one, sent = 1, []
    for kind, parts, number, ack in frames:
        liar.push(parts, kind, number=number, ack=ack)
        if kind is Kind.MESSAGE and number == next_one:
            next_one += 1
            sent.append(parts)
    bystander.send([b"hello"])
    assert await other.receive() == [b"hello"]
    for _ in range(10):
        await asyncio.sleep(0)
    assert got == sent[: len(got)], "once, in order, with no gap"
    if not session.is_closed:
        numbered = [each for each in frames if each[0] in (Kind.LENT, Kind.RELEASED)]
        assert numbered or got == sent
    assert bystander.is_connected
    for each in (session, bystander, other):
        each.end("the test is over")


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@given(FRAMES)
def test_frames_in_any_order_end_one_session_with_one_line_and_disturb_nobody(frames: list) -> None:
    lines, log = Lines(), logging.getLogger("danaus.wire")
    log.addHandler(lines)
    try:
        asyncio.run(played(frames))
    finally:
        log.removeHandler(lines)
    assert len(lines.said) <= 1


@given(st.integers(0, 255), st.binary(max_size=200))
def test_what_a_fuzzer_throws_is_taken_or_refused(target: int, data: bytes) -> None:
    """The targets of ``tools/fuzz.py``, which coverage guides at night."""
    fuzz.one(bytes([target]) + data)
