"""The term that a lease begins: above what the folder holds, and above what joiners have seen."""

from __future__ import annotations

import msgspec

from danaus.quorum.events import QuorumSettings
from danaus.quorum.messages import Epoch

from .quorum_cases import Town


def test_a_standby_over_the_same_folder_goes_on_in_its_own_term():
    town = Town()
    a, b = town.start("a", "b")
    a.commit(4)
    b.commit(4)
    town.settings = QuorumSettings(least_term=2)
    town.restart()
    town.register(a, b)
    town.join(a, b)
    assert town.last.epoch == Epoch(2, 1)
    assert (town.last.start, town.last.committed_step) == ("live", 4)
    town.join(a, b)
    assert town.last.epoch == Epoch(2, 2)


def test_without_the_folder_it_is_above_the_lease_and_all_that_joiners_have_seen():
    town = Town()
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.become(seen_term=6)
    town.settings = QuorumSettings(least_term=3)
    town.restart(saved=None, lost=True)
    town.register(a, b)
    town.join(a, b)
    town.wait(6.0)
    assert town.last.epoch == Epoch(7, 1)


def test_the_first_lease_begins_at_the_first_epoch():
    town = Town(QuorumSettings(least_term=1))
    town.start("a", "b")
    assert town.last.epoch == Epoch(1, 1)
    assert msgspec.json.encode(town.last.epoch) == b"[1,1]"
