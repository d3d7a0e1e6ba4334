"""The judge of progress among ranks of one replica: they wait for each other in a leaf (P-3)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from danaus.quorum.agents import observation_of
from danaus.quorum.messages import MemberId
from danaus.quorum.progress import ProgressSettings, RebuildGroup, StallJudge
from danaus.wire.lifecycle import ProcessPosition
from danaus.wire.position import Phase

from .test_progress import COMPUTE, REDUCE, START, Fleet, suspects

RANKS = {name: [MemberId(name, rank, 0) for rank in range(3)] for name in "abc"}
A = RANKS["a"]


@pytest.fixture
def fleet() -> Fleet:
    """Three replicas of three ranks; all but the first replica wait in the reduction."""
    judge = StallJudge(ProgressSettings(hang_limit_s=3.0))
    fleet = Fleet(judge, [member for ranks in RANKS.values() for member in ranks])
    place(fleet, {"a": (COMPUTE, 2), "b": (REDUCE, 1), "c": (REDUCE, 1)})
    return fleet


def place(fleet: Fleet, where: Mapping[str, tuple[int, int]]) -> None:
    for name, (phase, number) in where.items():
        for member in RANKS[name]:
            fleet.move(member, 7, phase, number)


def test_who_waits_for_a_sibling_at_the_same_leaf_is_not_suspected(fleet: Fleet) -> None:
    fleet.for_siblings.update(A[1:])
    assert suspects(fleet.wait(10.0)) == A[:1]


def test_all_that_do_not_wait_are_suspected(fleet: Fleet) -> None:
    fleet.for_siblings.add(A[1])
    assert suspects(fleet.wait(10.0)) == [A[0], A[2]]


def test_where_all_ranks_of_a_replica_wait_for_each_other_all_are_suspected(fleet: Fleet) -> None:
    fleet.for_siblings.update(A)
    assert suspects(fleet.wait(10.0)) == A


def test_one_that_was_stopped_while_it_waited_is_suspected_and_those_that_beat_are_not(
    fleet: Fleet,
) -> None:
    fleet.for_siblings.update(A)
    fleet.stop(A[2])
    assert suspects(fleet.wait(10.0)) == A[2:]


def test_who_waits_for_another_once_the_first_is_dead_is_judged_anew(fleet: Fleet) -> None:
    fleet.for_siblings.update(A[1:])
    assert suspects(fleet.wait(3.2)) == A[:1]
    fleet.judge.forget(A[:1], fleet.now)
    del fleet.where[A[0]]
    assert fleet.wait(2.9) == []
    assert suspects(fleet.wait(0.3)) == A[1:], "nobody is left for whom they could wait"


def test_a_sibling_that_is_ahead_or_apart_excuses_nobody(fleet: Fleet) -> None:
    fleet.for_siblings.update(A[1:])
    fleet.move(A[0], 7, REDUCE, 1)
    assert suspects(fleet.wait(3.2)) == A[1:]


def test_a_sibling_with_room_for_its_first_step_is_waited_for(fleet: Fleet) -> None:
    fleet.move(A[0], 0, START)
    fleet.wait(0.2)
    fleet.move(A[0], 7, COMPUTE, 2)
    fleet.for_siblings.update(A[1:])
    assert fleet.wait(25.0) == []
    assert suspects(fleet.wait(8.0)) == A[:1]


def test_where_all_replicas_stand_at_one_leaf_those_that_wait_for_siblings_do_not_count(
    fleet: Fleet,
) -> None:
    place(fleet, dict.fromkeys("abc", (COMPUTE, 2)))
    fleet.for_siblings.update(member for ranks in RANKS.values() for member in ranks[1:])
    (first,) = fleet.wait(3.2)
    assert isinstance(first, RebuildGroup)
    assert "a/1#0" not in first.reason
    assert suspects(fleet.wait(3.2)) == [RANKS[name][0] for name in "abc"]


@pytest.mark.parametrize("for_siblings", [True, False])
def test_the_agent_s_word_reaches_the_judge(for_siblings: bool) -> None:
    seen = ProcessPosition("p", 7, Phase.COMPUTE, 2, False, 1.0, for_siblings)
    assert observation_of(seen).for_siblings == for_siblings
