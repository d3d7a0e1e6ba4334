"""Replicas that live and do not reach each other: one is left out and tried again."""

from __future__ import annotations

from danaus.quorum.events import Abort, Fence
from danaus.quorum.messages import MemberId, StepReport
from danaus.quorum.rifts import LONGEST_RETRY_S, RETRY_S, Rifts

from .quorum_cases import Peer, Town, learners, names


def fail_to_form(town: Town, who: Peer, *others: Peer) -> None:
    """Let one ask as it could not dial others."""
    who.become(unreached=tuple(other.member for other in others))
    town.join(who)
    who.become(unreached=())


def test_of_two_that_do_not_reach_each_other_one_is_left_out_at_once_and_lives() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    fail_to_form(town, c, b)
    assert {member for said in town.all(Abort) for member in said.members} == {a.member, b.member}
    assert a.aborted == "c/0#0 does not reach b/0#0", "who waits for them hears of it at once"
    town.join(a, b)
    assert names(town.last) == ["a", "b"]
    assert "c is out of reach of b (" in town.last.reason
    assert c.waiting.startswith("c is out of reach of b (")
    assert not town.all(Fence), "it is neither hung nor silent"


def test_both_are_tried_again_after_longer_and_longer_waits_and_forgotten_once_they_met() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    waits = []
    for _ in range(6):
        fail_to_form(town, c, b)
        town.join(a, b)
        assert names(town.last) == ["a", "b"]
        began = town.now
        while not a.pending:
            town.wait(0.25)
        waits.append(town.now - began)
        town.join(a, b)
        assert names(town.last) == ["a", "b", "c"]
    assert [round(each) for each in waits] == [5, 10, 20, 40, 60, 60]
    for peer in (a, b, c):
        peer.commit(1)
    town.join(a, b, c)
    assert names(town.last) == ["a", "b", "c"]
    fail_to_form(town, c, b)
    town.join(a, b)
    town.wait(RETRY_S + 0.5)
    assert a.pending, "what was mended counts anew"


def test_one_that_was_left_out_learns_what_it_missed() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    fail_to_form(town, c, b)
    town.join(a, b)
    a.commit(7)
    b.commit(7)
    town.wait(RETRY_S + 0.5)
    town.join(a, b)
    assert learners(town.last) == ["c"]


def test_whoever_fails_to_reach_the_most_is_left_out_and_as_few_as_it_takes() -> None:
    rifts = Rifts()
    at = {name: (name, 0) for name in "abcd"}
    member = {name: MemberId(name, 0, 0) for name in "abcd"}
    everyone = set(at.values())

    def hear(name: str, *others: str) -> None:
        unreached = tuple(member[other] for other in others)
        rifts.hear(member[name], StepReport(0, "seed", unreached=unreached), 0.0)

    hear("b", "a")
    assert set(rifts.left_out(everyone, 0.0)) == {at["b"]}
    hear("c", "a")
    assert set(rifts.left_out(everyone, 0.0)) == {at["a"]}, "one instead of two"
    hear("d", "b", "a")
    assert set(rifts.left_out(everyone, 0.0)) == {at["a"], at["d"]}
    assert set(rifts.left_out(everyone - {at["a"]}, 0.0)) == {at["d"]}, "who is gone does not count"
    assert not rifts.left_out(everyone, LONGEST_RETRY_S)


def test_one_that_waits_for_the_other_of_a_pair_is_taken_back_when_that_dies() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    fail_to_form(town, c, b)
    town.join(a, b)
    town.die(b)
    town.join(a)
    assert names(town.last) == ["a", "c"]


def test_one_that_has_not_asked_yet_is_waited_for_before_it_is_left_out() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    before = town.last.epoch
    fail_to_form(town, b, c)
    town.join(a)
    assert town.last.epoch == before, "c is neither fenced nor has it promised anything"
    town.join(c)
    assert names(town.last) == ["a", "b"]
    assert c.waiting.startswith("c is out of reach of b (")
