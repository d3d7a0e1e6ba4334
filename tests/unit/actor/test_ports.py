"""What arrives at a port, and who is told (A-1, A-4)."""

from __future__ import annotations

import gc

import pytest

from danaus.actor.portable import packed_exception
from danaus.actor.ports import Mailbox, PortTable, Reply
from danaus.actor.process_messages import CODEC, Gone, PortRaised, PortValue, Raised, Returned
from danaus.actor.supervision_messages import ActorKey
from danaus.core.errors import ActorError, ChannelClosed
from danaus.wire.codec import pack, unpack

KEY = ActorKey("mesh", 0)


class Peer:
    worker = None

    def __init__(self) -> None:
        self.sent: list[tuple[object, list[object]]] = []

    def send(self, message, parts=()) -> None:
        self.sent.append((CODEC.decode(CODEC.encode(message)), list(parts)))


def value(number: int, what: object, rank: int = -1) -> tuple[PortValue, list[object]]:
    return PortValue(number, rank), pack(what)


def ask(mailbox: Mailbox):
    return mailbox.ask(lambda arrival: arrival.value())


def test_values_come_in_the_order_of_arrival_whoever_was_first():
    table, mailbox = PortTable(), Mailbox(once=False)
    number = table.open(mailbox)
    early = [ask(mailbox), ask(mailbox)]
    for k in range(4):
        table.take(*value(number, k))
    late = [ask(mailbox), ask(mailbox)]
    assert [future.get(1.0) for future in (*early, *late)] == [0, 1, 2, 3]


def test_one_that_was_cancelled_takes_nobody_s_value():
    table, mailbox = PortTable(), Mailbox(once=False)
    number = table.open(mailbox)
    first, second = ask(mailbox), ask(mailbox)
    first.cancel()
    table.take(*value(number, "kept"))
    assert second.get(1.0) == "kept"


def test_a_port_for_one_value_takes_one():
    table, mailbox = PortTable(), Mailbox(once=True)
    number = table.open(mailbox)
    waiting, in_vain = ask(mailbox), ask(mailbox)
    table.take(*value(number, 1))
    table.take(*value(number, 2))
    assert waiting.get(1.0) == 1
    for future in (in_vain, ask(mailbox)):
        with pytest.raises(ChannelClosed, match="its one value was taken"):
            future.get(1.0)


def test_a_closed_port_ends_whoever_waits_and_keeps_what_came():
    table, mailbox = PortTable(), Mailbox(once=False)
    number = table.open(mailbox)
    table.take(*value(number, "before"))
    mailbox.close()
    table.take(*value(number, "after"))
    assert ask(mailbox).get(1.0) == "before"
    with pytest.raises(ChannelClosed, match="it was closed"):
        ask(mailbox).get(1.0)


def test_an_exception_is_raised_where_the_value_is_asked_for():
    table, mailbox = PortTable(), Mailbox(once=False)
    number = table.open(mailbox)
    sent = PortRaised(number, 3, True, "a port", "exception", "KeyError: 'x'", "text")
    table.take(sent, packed_exception(KeyError("x")))
    table.take(sent, ())
    with pytest.raises(KeyError):
        ask(mailbox).get(1.0)
    with pytest.raises(ActorError, match="KeyError"):  # it could not be pickled
        ask(mailbox).get(1.0)


def test_a_receiver_that_nobody_holds_is_closed():
    table, mailbox = PortTable(), Mailbox(once=False)
    number = table.open(mailbox)
    del mailbox
    gc.collect()
    table.take(*value(number, "nobody is there"))
    assert not table._mailboxes


def test_a_response_port_answers_its_call_once():
    table, peer = PortTable(), Peer()
    number = table.open_reply(Reply(KEY, "a[0]", "work", peer, 7))
    table.take(*value(number, "first"))
    table.take(*value(number, "second"))
    ((answer, parts),) = peer.sent
    assert answer == Returned(7)
    assert unpack(parts) == "first"
    assert not table.forget(peer, 7)


def test_a_response_port_can_answer_with_an_exception():
    table, peer = PortTable(), Peer()
    number = table.open_reply(Reply(KEY, "a[0]", "work", peer, 7))
    parts = packed_exception(ValueError("no"))
    message = PortRaised(number, -1, True, "a port", "exception", "ValueError: no", "text")
    table.take(message, parts)
    assert peer.sent == [(Raised(7, "a[0]", "work", "ValueError: no", "text"), parts)]


def test_an_actor_that_is_gone_answers_no_more():
    table, peer, others = PortTable(), Peer(), Peer()
    number = table.open_reply(Reply(KEY, "a[0]", "work", peer, 7))
    table.open_reply(Reply(ActorKey("mesh", 1), "a[1]", "work", others, 8))
    table.abandon(KEY, "it was stopped")
    table.take(*value(number, "too late"))
    assert peer.sent == [(Gone(7, "a[0]", "it was stopped"), [])]
    assert others.sent == []


def test_a_caller_that_does_not_wait_is_sent_nothing():
    table, peer = PortTable(), Peer()
    number = table.open_reply(Reply(KEY, "a[0]", "work", peer, 0))
    table.take(*value(number, "dropped"))
    table.abandon(KEY, "it was stopped")
    assert peer.sent == []


def test_whoever_waits_for_a_value_keeps_the_port_open():
    table, mailbox = PortTable(), Mailbox(once=True)
    number = table.open(mailbox)
    waiting = ask(mailbox)
    del mailbox
    gc.collect()
    table.take(*value(number, "arrived"))
    assert waiting.get(1.0) == "arrived"
