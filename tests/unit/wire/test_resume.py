"""Once and in order, whatever is lost (A-3): the pure machine under lossy connections."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from danaus.core.errors import FrameDamaged
from danaus.wire.resume import ACK_EVERY_BYTES, ACK_EVERY_MESSAGES, Window


def test_what_is_acknowledged_is_forgotten() -> None:
    window = Window()
    assert [window.send([b"x"], 10) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert window.kept_bytes == 50
    window.acked(3)
    window.acked(2)
    assert window.kept_bytes == 20
    assert [sent.number for sent in window.resumed(4)] == [5]
    assert window.kept(4) is None
    assert window.kept(5) is not None
    assert window.kept(6) is None


def test_repetitions_are_told_from_news_and_gaps_from_both() -> None:
    window = Window()
    assert window.arrived(1, 1)
    assert not window.arrived(1, 1)
    assert window.arrived(2, 1)
    assert not window.arrived(1, 1)
    with pytest.raises(FrameDamaged, match="message 4 came after 2"):
        window.arrived(4, 1)
    assert window.received == 2


def test_impossible_claims_are_refused() -> None:
    window = Window()
    window.send([b"x"], 1)
    with pytest.raises(FrameDamaged, match="1 was the last"):
        window.acked(2)
    window.acked(1)
    with pytest.raises(FrameDamaged, match="had acknowledged 1"):
        window.resumed(0)


def test_acknowledgements_are_owed_until_taken() -> None:
    window = Window()
    assert not window.oldest_owed
    window.arrived(1, 1)
    assert window.oldest_owed == 1
    assert not window.ack_is_due
    assert window.take_ack() == 1
    assert not window.oldest_owed
    for number in range(2, 2 + ACK_EVERY_MESSAGES):
        window.arrived(number, 1)
    assert window.ack_is_due
    window.take_ack()
    window.arrived(2 + ACK_EVERY_MESSAGES, ACK_EVERY_BYTES)
    assert window.ack_is_due


@given(st.integers(-5, 50), st.integers(1, 10))
def test_no_number_breaks_it_silently(number: int, sent: int) -> None:
    window = Window()
    for _ in range(sent):
        window.send([b""], 1)
    try:
        window.acked(number)
    except FrameDamaged:
        assert number > sent
    assert window.kept_bytes == sent - min(max(number, 0), sent if number <= sent else 0)


class TwoEnds(RuleBasedStateMachine):
    """Two windows, and connections that lose whatever is under way when they are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = (Window(), Window())
        self.sent: tuple[list[int], list[int]] = ([], [])
        self.delivered: tuple[list[int], list[int]] = ([], [])
        self.wires: tuple[deque, deque] = (deque(), deque())  # towards end 0, towards end 1
        self.is_up = False

    def put(self, end: int, number: int) -> None:
        if self.is_up:
            self.wires[1 - end].append((number, self.ends[end].take_ack()))

    @rule(end=st.sampled_from((0, 1)))
    def send(self, end: int) -> None:
        value = len(self.sent[end])
        self.sent[end].append(value)
        self.put(end, self.ends[end].send([bytes([value % 256])], 1))

    @rule(end=st.sampled_from((0, 1)))
    def acknowledge(self, end: int) -> None:
        if self.ends[end].oldest_owed:
            self.put(end, 0)

    @rule(end=st.sampled_from((0, 1)), count=st.integers(1, 5))
    def deliver(self, end: int, count: int) -> None:
        for _ in range(min(count, len(self.wires[end]))):
            number, ack = self.wires[end].popleft()
            self.ends[end].acked(ack)
            if number and self.ends[end].arrived(number, 1):
                self.delivered[end].append(number - 1)

    @precondition(lambda self: self.is_up)
    @rule()
    def cut(self) -> None:
        self.is_up = False
        for wire in self.wires:
            wire.clear()

    @precondition(lambda self: not self.is_up)
    @rule()
    def reconnect(self) -> None:
        self.is_up = True
        received = [end.take_ack() for end in self.ends]
        for end in (0, 1):
            for message in self.ends[end].resumed(received[1 - end]):
                self.wires[1 - end].append((message.number, self.ends[end].take_ack()))

    @invariant()
    def once_and_in_order(self) -> None:
        for end in (0, 1):
            got = self.delivered[end]
            assert got == self.sent[1 - end][: len(got)]

    def teardown(self) -> None:
        if not self.is_up:
            self.reconnect()
        for end in (0, 1):
            self.deliver(end, 10**6)
        assert self.delivered == (self.sent[1], self.sent[0])


TestTwoEnds = TwoEnds.TestCase
