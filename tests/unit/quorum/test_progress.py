"""The judge of progress: P-3 in small."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from danaus.quorum.messages import MemberId
from danaus.quorum.progress import (
    Observation,
    ProgressSettings,
    Quiet,
    RebuildGroup,
    StallJudge,
    StormReported,
    Suspect,
    Verdict,
)

START, JOIN, LEARN, COMPUTE, REDUCE, VOTE = 0, 1, 2, 4, 5, 6
A, B, C, D, E, F, G, H = (MemberId(name, 0, 0) for name in "abcdefgh")


class Fleet:
    """Processes that stand or move, seen ten times a second."""

    def __init__(self, judge: StallJudge, members: Iterable[MemberId]) -> None:
        self.judge = judge
        self.now = 0.0
        self.where = dict.fromkeys(members, (1, COMPUTE, 0))
        self.since = dict.fromkeys(members, 0.0)
        self.heard = dict.fromkeys(members, 0.0)
        self.stopped: set[MemberId] = set()
        self.answered: dict[MemberId, float] = {}
        self.apart: set[MemberId] = set()
        self.for_siblings: set[MemberId] = set()

    def move(self, member: MemberId, step: int, phase: int, collective: int = 0) -> None:
        self.where[member] = (step, phase, collective)
        self.since[member] = self.now

    def seen(self) -> dict[MemberId, Observation]:
        return {
            member: Observation(
                where,
                self.now - self.since[member],
                waiting=where[1] in (JOIN, LEARN) and member not in self.apart,
                starting=where[1] == START,
                apart=where[1] == LEARN and member in self.apart,
                together=where[1] in (REDUCE, VOTE),
                for_siblings=member in self.for_siblings,
                quiet=self.quiet(member),
            )
            for member, where in self.where.items()
        }

    def stop(self, *members: MemberId) -> None:
        """SIGSTOP: neither moves nor beats any more."""
        self.stopped.update(members)

    def answer(self, *members: MemberId) -> None:
        """The service has answered what they asked."""
        self.answered.update(dict.fromkeys(members, self.now))

    def quiet(self, member: MemberId) -> Quiet:
        answered = self.answered.get(member)
        answered_s = self.now - answered if answered is not None else None
        return Quiet(self.now - self.heard[member], answered_s)

    def wait(self, seconds: float) -> list[Verdict]:
        out: list[Verdict] = []
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += 0.1
            self.heard.update((m, self.now) for m in self.where if m not in self.stopped)
            out += self.judge.observe(self.seen(), self.now)
        return out


def steps(fleet: Fleet, count: int, compute_s: float) -> list[Verdict]:
    """Let all train for some steps; reductions take no time."""
    out: list[Verdict] = []
    for step in range(2, 2 + count):
        for member in fleet.where:
            fleet.move(member, step, COMPUTE)
        out += fleet.wait(compute_s)
        for member in fleet.where:
            fleet.move(member, step, REDUCE, 1)
        out += fleet.wait(0.1)
    return out


@pytest.fixture
def named() -> StallJudge:
    return StallJudge(ProgressSettings(hang_limit_s=3.0))


def suspects(verdicts: list[Verdict]) -> list[MemberId]:
    return [verdict.member for verdict in verdicts if isinstance(verdict, Suspect)]


def test_only_the_one_behind_is_suspected_and_once(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 7, REDUCE, 1)
    fleet.move(C, 7, REDUCE, 1)
    fleet.move(B, 7, COMPUTE)
    assert fleet.wait(2.9) == []
    (verdict,) = fleet.wait(5.0)
    assert isinstance(verdict, Suspect)
    assert verdict.member == B
    assert "limit 3.0 s" in verdict.reason


def test_one_that_waits_is_never_suspected(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    for member in (A, B, C):
        fleet.move(member, 7, JOIN)
    assert fleet.wait(100.0) == []


def test_all_at_one_position_are_rebuilt_and_then_only_the_hung_one_is_evicted(
    named: StallJudge,
) -> None:
    fleet = Fleet(named, (A, B, C))
    for member in (A, B, C):
        fleet.move(member, 7, REDUCE, 1)
    (first,) = fleet.wait(3.1)
    assert isinstance(first, RebuildGroup)
    fleet.move(A, 7, JOIN)
    fleet.move(C, 7, JOIN)
    assert suspects(fleet.wait(0.4)) == [B]


def test_all_at_one_position_again_after_a_rebuild_are_all_suspected(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B))
    for member in (A, B):
        fleet.move(member, 7, REDUCE, 1)
    assert [type(verdict) for verdict in fleet.wait(3.1)] == [RebuildGroup]
    for phase in (JOIN, REDUCE):
        for member in (A, B):
            fleet.move(member, 7, phase, 1)
    assert suspects(fleet.wait(2.8)) == []
    assert suspects(fleet.wait(0.5)) == [A, B]


def test_nobody_is_evicted_in_a_storm_and_it_is_reported_once(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C, D, E, F, G, H))
    for member in (A, B, C):
        fleet.move(member, 7, COMPUTE)
    for member in (D, E, F, G, H):
        fleet.move(member, 7, REDUCE, 1)
    verdicts = fleet.wait(10.0)
    assert [type(verdict) for verdict in verdicts] == [StormReported]
    assert "3 of 8" in verdicts[0].reason


def test_two_of_eight_are_evicted(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C, D, E, F, G, H))
    for member in (A, B, C, D, E, F, G, H):
        fleet.move(member, 7, *((COMPUTE, 0) if member in (A, B) else (REDUCE, 1)))
    assert suspects(fleet.wait(3.2)) == [A, B]


def test_ranks_of_one_replica_count_as_one() -> None:
    judge = StallJudge(ProgressSettings(hang_limit_s=3.0))
    hung = [MemberId("a", 0, 0), MemberId("a", 1, 0)]
    fleet = Fleet(judge, [*hung, B, C])
    for member in (B, C):
        fleet.move(member, 1, REDUCE, 1)
    assert suspects(fleet.wait(3.2)) == hung


def test_the_limit_follows_the_work() -> None:
    fleet = Fleet(StallJudge(), (A, B, C))
    assert steps(fleet, 5, compute_s=2.0) == []
    for member in (A, C):
        fleet.move(member, 9, REDUCE, 1)
    fleet.move(B, 9, COMPUTE)
    fleet.wait(0.1)
    assert fleet.judge.limit_s(B) == pytest.approx(20.0, abs=2.0)
    assert suspects(fleet.wait(15.0)) == []
    assert suspects(fleet.wait(8.0)) == [B]


def test_the_limit_is_never_under_five_seconds() -> None:
    fleet = Fleet(StallJudge(), (A, B, C))
    steps(fleet, 5, compute_s=0.1)
    assert fleet.judge.limit_s(A) == 5.0


def test_a_first_step_is_given_room(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 0, START)
    fleet.wait(0.2)
    fleet.move(A, 1, COMPUTE)
    for member in (B, C):
        fleet.move(member, 1, REDUCE, 1)
    assert suspects(fleet.wait(29.0)) == []
    assert suspects(fleet.wait(2.0)) == [A]


def test_one_that_only_starts_hides_nobody(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 0, START)
    fleet.move(B, 7, COMPUTE)
    fleet.move(C, 7, REDUCE, 1)
    assert suspects(fleet.wait(3.2)) == [B]


def test_positions_that_are_not_read_any_more_say_nothing(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.wait(2.5)
    seen = fleet.seen()
    assert named.observe({}, fleet.now + 10.0) == ()
    assert seen


def test_who_waited_for_the_dead_is_not_suspected_next(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 2, REDUCE, 1)
    fleet.move(C, 2, REDUCE, 2)
    assert suspects(fleet.wait(3.2)) == [B]
    named.forget([B], fleet.now)
    del fleet.where[B]
    assert fleet.wait(2.5) == []
    assert suspects(fleet.wait(1.0)) == [A]


def test_one_stopped_where_it_waited_for_its_answer_is_suspected_and_not_those_it_keeps(
    named: StallJudge,
) -> None:
    fleet = Fleet(named, (A, B, C))
    for member in (A, B, C):
        fleet.move(member, 7, JOIN)
    fleet.stop(B)
    fleet.answer(A, B, C)
    for member in (A, C):
        fleet.move(member, 8, COMPUTE)  # forming the group, which takes all three
    assert fleet.wait(2.9) == []
    assert suspects(fleet.wait(0.3)) == [B]


def test_one_that_beats_and_does_not_follow_its_answer_is_suspected(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    for member in (A, B, C):
        fleet.move(member, 7, JOIN)
    assert fleet.wait(60.0) == []
    fleet.answer(B)
    assert fleet.wait(2.8) == []
    (verdict,) = fleet.wait(0.4)
    assert isinstance(verdict, Suspect)
    assert verdict.member == B
    assert "answered" in verdict.reason


def test_a_stopped_learner_is_suspected_while_members_hold_and_needs_no_room(
    named: StallJudge,
) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(C, 0, START)
    fleet.wait(0.2)
    for member in (A, B):
        fleet.move(member, 7, JOIN)
    fleet.move(C, 7, LEARN)
    assert fleet.wait(20.0) == []
    fleet.stop(C)
    assert fleet.wait(2.9) == []
    assert suspects(fleet.wait(0.3)) == [C]


def test_a_stopped_donor_is_suspected_and_not_its_learner(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    for member in (A, B):
        fleet.move(member, 7, JOIN)
    fleet.move(C, 7, LEARN)
    fleet.stop(A)
    assert suspects(fleet.wait(3.3)) == [A]


def test_with_a_rank_that_hangs_its_siblings_are_suspected_and_no_other_replica() -> None:
    judge = StallJudge(ProgressSettings(hang_limit_s=3.0))
    ranks = [MemberId(name, rank, 0) for name in "abc" for rank in (0, 1)]
    fleet = Fleet(judge, ranks)
    for member in ranks:
        fleet.move(member, 7, COMPUTE, 2)
    fleet.stop(ranks[1])
    for member in ranks[2:]:
        fleet.move(member, 7, REDUCE, 1)
    assert suspects(fleet.wait(3.2)) == ranks[:2]


def test_where_one_rank_of_all_replicas_stands_in_an_exchange_it_is_rebuilt_first(
    named: StallJudge,
) -> None:
    ranks = [MemberId(name, rank, 0) for name in "abc" for rank in (0, 1)]
    fleet = Fleet(named, ranks)
    for member in ranks:
        fleet.move(member, 7, *((VOTE, 2) if member.rank == 0 else (REDUCE, 1)))
    fleet.stop(ranks[1])
    assert [type(verdict) for verdict in fleet.wait(3.2)] == [RebuildGroup]
    for member in ranks:
        if member != ranks[1]:
            fleet.move(member, 6, JOIN)
    assert suspects(fleet.wait(0.4)) == [ranks[1]]


def test_who_came_first_to_an_exchange_is_not_suspected_before_the_others(
    named: StallJudge,
) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 7, REDUCE, 1)
    fleet.wait(0.3)
    for member in (B, C):
        fleet.move(member, 7, REDUCE, 1)
    assert fleet.wait(2.9) == []
    assert [type(verdict) for verdict in fleet.wait(0.2)] == [RebuildGroup]
