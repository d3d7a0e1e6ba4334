"""Messages between an agent and its nursery come whole, in whatever portions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.actor.nursery_stream import MAX_MESSAGE_BYTES, Incoming, framed
from danaus.core.errors import FrameDamaged, MessageTooLarge


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1))
def test_they_come_in_their_order_whatever_the_portions(messages, portions):
    sent = b"".join(map(framed, messages))
    incoming, came, at = Incoming("peer"), [], 0
    while at < len(sent):
        for size in portions:
            came += incoming.filled(sent[at : at + size])
            at += size
    assert came == messages


def test_a_torn_one_is_never_seen():
    sent = framed(b"first") + framed(b"second")
    for end in range(len(sent)):
        assert Incoming("peer").filled(sent[:end]) == ([b"first"] if end >= 9 else [])


def test_what_is_no_length_ends_it_before_anything_is_kept():
    incoming = Incoming("the nursery")
    with pytest.raises(FrameDamaged, match="the nursery"):
        incoming.filled((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little"))
    with pytest.raises(MessageTooLarge):
        framed(bytes(MAX_MESSAGE_BYTES + 1))
