"""What has ended is told to whoever waits for it, and kept by nobody."""

from __future__ import annotations

import gc
from collections import Counter

from danaus.actor import Actor, endpoint
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
