"""Requests for actors that are not here: each call is answered all the same (A-1, A-4)."""

from __future__ import annotations

import asyncio

import pytest

from danaus.actor import hosting as hosting_module
from danaus.actor.contexts import ProcessInfo
from danaus.actor.hosting import Hosting
from danaus.actor.process_messages import (
    CODEC,
    AdoptActor,
    Deliver,
    Gone,
    Returned,
    SpawnActor,
    StopActor,
)
from danaus.actor.supervision_messages import ActorHosted


class Process:
    """A process of incarnation 2 that hosts nobody."""

    info = ProcessInfo("host0/w/0#2")

    def handle(self, event) -> None:
        raise AssertionError(f"nothing should have happened: {event}")


class Peer:
    worker = None

    def __init__(self) -> None:
        self.sent: list[object] = []

    def send(self, message, parts=()) -> None:
        self.sent.append(CODEC.decode(CODEC.encode(message)))


@pytest.fixture
def hosting():
    return Hosting(Process())


def test_a_message_for_another_incarnation_is_refused(hosting):
    peer = Peer()
    hosting.take(Deliver(7, "mesh", 0, 1, "sender", 1, "endpoint"), (), peer)
    assert peer.sent == [Gone(7, "mesh/0", "the message is for incarnation 1")]


def test_nobody_is_told_of_a_refused_message_that_nobody_waits_for(hosting):
    peer = Peer()
    hosting.take(Deliver(0, "mesh", 0, 1, "sender", 1, "endpoint"), (), peer)
    assert peer.sent == []


def test_stopping_what_is_not_here_is_done_at_once(hosting):
    peer = Peer()
    hosting.take(StopActor(3, "mesh", 0), (), peer)
    assert peer.sent == [Returned(3)]


def test_stopping_all_of_nothing_is_done_at_once(hosting):
    done = []
    hosting.stop_all(lambda: done.append(True))
    assert done == [True]


class Cell:
    """Notes what an actor's cell is told."""

    told: list[tuple[object, ...]]

    def __init__(self, process, context, owner) -> None:
        Cell.told = []
        self.context, self.owner = context, owner

    def construct(self, parts, call) -> None:
        self.told.append(("construct", call))

    def skip(self, sender, number) -> None:
        self.told.append(("skip", sender, number))

    def deliver(self, messages, peer) -> None:
        self.told.extend(("deliver", message.number) for message, _ in messages)


def test_an_actor_that_its_owner_died_before_it_had_made_is_made_when_it_is_adopted(monkeypatch):
    monkeypatch.setattr(hosting_module, "ActorCell", Cell)
    monkeypatch.setattr(Process, "handle", lambda self, event: isinstance(event, ActorHosted))
    hosting, peer = Hosting(Process()), Peer()
    hosting.take(AdoptActor(7, "mesh", 0), (), peer)
    assert peer.sent == [Gone(7, "mesh/0", "there is no such actor in this process")]
    hosting.take(AdoptActor(8, "mesh", 0, "late", ("r",), (1,)), (b"what it is made of",), peer)
    assert Cell.told == [("construct", 8)]


def test_an_actor_that_is_made_late_does_not_wait_for_what_was_refused_before(monkeypatch):
    monkeypatch.setattr(hosting_module, "_EARLY_LIMIT_S", 0.0)
    monkeypatch.setattr(hosting_module, "ActorCell", Cell)
    monkeypatch.setattr(Process, "handle", lambda self, event: isinstance(event, ActorHosted))

    async def play():
        hosting, peer, refused = Hosting(Process()), Peer(), asyncio.Event()
        peer.send = lambda message, parts=(): refused.set()
        hosting.take(Deliver(7, "mesh", 0, 2, "sender", 1, "endpoint"), (), peer)
        async with asyncio.timeout(5.0):
            await refused.wait()
        hosting.take(SpawnActor(8, "mesh", "late", 0, ("r",), (1,)), (), peer)
        hosting.take(Deliver(9, "mesh", 0, 2, "sender", 2, "endpoint"), (), peer)

    asyncio.run(play())
    assert Cell.told == [("skip", "sender", 1), ("construct", 8), ("deliver", 2)]
