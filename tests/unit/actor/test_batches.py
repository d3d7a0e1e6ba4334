"""Small messages that travel together: what is said once, and what a liar is told (A-1, W-3)."""

from __future__ import annotations

import itertools

import pytest

from danaus.actor.batches import Incoming, Outgoing
from danaus.actor.place import Place
from danaus.actor.process_messages import CODEC, Deliver
from danaus.core.errors import FrameDamaged

WHOLE, PART = Place(3, ("gpus",), (4,)), Place(0, (), ())
KEY = ("mesh", 3, 1, "sender", "ping", WHOLE)
OTHER = ("mesh", 3, 1, "another", "ping", WHOLE)
OF_A_PART = ("mesh", 3, 1, "sender", "ping", PART)


def sent(outgoing):
    """Return what a peer decodes of all that waits."""
    return CODEC.decode(CODEC.encode(outgoing.take()))


def test_messages_arrive_as_they_were_sent_and_routes_are_said_once():
    outgoing, incoming = Outgoing(), Incoming("peer")
    outgoing.add(KEY, b"a", call=7, numbers=itertools.count(1))
    outgoing.add(OTHER, b"b", call=0, numbers=itertools.count(1))
    outgoing.add(KEY, b"c", call=8, numbers=itertools.count(2))
    assert len(outgoing) == 3
    many = sent(outgoing)
    assert len(many.routes) == 2
    assert incoming.open(many) == [
        (Deliver(7, "mesh", 3, 1, "sender", 1, "ping", WHOLE), (b"a",)),
        (Deliver(0, "mesh", 3, 1, "another", 1, "ping", WHOLE), (b"b",)),
        (Deliver(8, "mesh", 3, 1, "sender", 2, "ping", WHOLE), (b"c",)),
    ]
    assert len(outgoing) == 0
    outgoing.add(KEY, b"d", call=9, numbers=itertools.count(3))
    many = sent(outgoing)
    assert many.routes == []
    assert [message.number for message, _ in incoming.open(many)] == [3]


def test_what_goes_to_a_part_goes_a_route_of_its_own():
    outgoing = Outgoing()
    for key in (KEY, OF_A_PART, KEY):
        outgoing.add(key, b"", call=0, numbers=itertools.count(1))
    many = sent(outgoing)
    assert [route.place for route in many.routes] == [WHOLE, PART]
    places = [message.place for message, _ in Incoming("peer").open(many)]
    assert places == [WHOLE, PART, WHOLE]
    assert places[1].point == {}


def test_a_route_that_was_never_named_is_refused():
    outgoing = Outgoing()
    outgoing.add(KEY, b"a", call=7, numbers=itertools.count(1))
    outgoing.take()
    outgoing.add(KEY, b"b", call=8, numbers=itertools.count(2))
    with pytest.raises(FrameDamaged, match="route 0, which was never named"):
        Incoming("peer").open(sent(outgoing))
