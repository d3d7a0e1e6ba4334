"""What has ended is told to whoever waits for it, and kept by nobody."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from danaus.actor import Actor, Channel, Port, SupervisionError, endpoint
from danaus.actor.owned import OwnedActors, OwnedProcs
from danaus.actor.process_link import ProcessLink
from danaus.wire.session import DialledSession

LIMIT_S = 20.0
KINDS = (OwnedProcs, OwnedActors, ProcessLink, DialledSession)
TIMES = 4


class Plain(Actor):
    @endpoint
    def ping(self) -> int:
        return 1


class Giver(Actor):
    @endpoint
    def give(self) -> Port[int]:
        port, self.receiver = Channel[int].open()
        return port


class Sender(Actor):
    @endpoint
    def send_twice(self, port: Port[int]) -> None:
        assert not port.return_undeliverable
        port.send(3)
        port.send(4)


class Asker(Actor):
    @endpoint
    def ask(self, plain) -> str:
        try:
            plain.ping.call_one().get(LIMIT_S)
        except SupervisionError as error:
            return error.why
        return ""


def one_life(host, incarnation: int) -> None:
    procs = host.spawn_procs(name="w", incarnation=incarnation)
    plain = procs.spawn("plain", Plain)
    assert plain.ping.call_one().get(LIMIT_S) == 1
    procs.kill().get(LIMIT_S)


def kept() -> Counter[type]:
    gc.collect()
    return Counter(type(each) for each in gc.get_objects() if type(each) in KINDS)


def test_actors_whose_processes_were_ended_have_ended_too(one):
    procs = one.host(0).spawn_procs(name="w")
    plain = procs.spawn("plain", Plain)
    plain.initialized.get(LIMIT_S)
    procs.kill().get(LIMIT_S)
    assert plain.stop().get(LIMIT_S) is None


def test_a_process_that_has_ended_leaves_nothing_in_its_owner(one):
    one_life(one.host(0), 0)
    before = kept()
    for incarnation in range(1, TIMES + 1):
        one_life(one.host(0), incarnation)
    more = kept() - before
    assert not [kind.__name__ for kind, num in more.items() if num >= TIMES], more


def test_a_port_can_be_told_to_swallow_what_cannot_be_delivered(one):
    giver = one.host(0).spawn_procs(name="w")
    port = giver.spawn("giver", Giver).give.call_one().get(LIMIT_S)
    other = one.host(0).spawn_procs().spawn("sender", Sender)
    giver.kill().get(LIMIT_S)
    with pytest.raises(SupervisionError):
        port.send(1)
    port.return_undeliverable = False
    port.send(2)
    other.send_twice.call_one(port).get(LIMIT_S)  # it goes with it


def why_gone(call) -> str:
    with pytest.raises(SupervisionError) as caught:
        call.get(LIMIT_S)
    return caught.value.why


def test_whoever_calls_what_was_stopped_is_told_why(two):
    procs, others = (two.host(at).spawn_procs() for at in range(2))
    plain, left = procs.spawn("plain", Plain), procs.spawn("left", Plain)
    asker = others.spawn("asker", Asker)
    assert asker.ask.call_one(plain).get(LIMIT_S) == ""
    plain.stop("its work is done").get(LIMIT_S)
    assert why_gone(plain.ping.call_one()) == "it was stopped: its work is done"
    assert asker.ask.call_one(plain).get(LIMIT_S) == "it was stopped: its work is done"
    assert left.ping.call_one().get(LIMIT_S) == 1
    procs.stop("hang up, the rest goes on").get(LIMIT_S)
    told = "it was stopped: hang up, the rest goes on (its process ended with exit code 0)"
    assert why_gone(left.ping.call_one()) == told
    assert asker.ask.call_one(left).get(LIMIT_S) == told
    assert why_gone(procs.spawn("late", Plain).ping.call_one()) == told


def test_what_a_host_ran_is_stopped_for_a_reason_too(one):
    host = one.host(0)
    plain = host.spawn_procs().spawn("plain", Plain)
    plain.initialized.get(LIMIT_S)
    host.stop("the night is over").get(LIMIT_S)
    assert why_gone(plain.ping.call_one()).startswith("it was stopped: the night is over (")
