"""The judge of progress where words between processes are lost: nobody hangs (P-3)."""

from __future__ import annotations

import pytest

from danaus.quorum.progress import (
    Observation,
    ProgressSettings,
    Quiet,
    RebuildGroup,
    StallJudge,
    Suspect,
)

from .test_progress import COMPUTE, JOIN, REDUCE, VOTE, A, B, C, Fleet, suspects


@pytest.fixture
def named() -> StallJudge:
    return StallJudge(ProgressSettings(hang_limit_s=3.0))


def test_one_that_waits_for_a_process_that_nobody_sees_any_more_is_not_suspected(
    named: StallJudge,
) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 7, VOTE, 2)
    fleet.move(B, 8, REDUCE, 3)  # it had the last words of C, A had not
    fleet.wait(0.1)
    del fleet.where[C]  # its host falls silent
    assert fleet.wait(12.0) == [], "heartbeats tell what has become of C, not A"
    named.forget([C], fleet.now)
    assert fleet.wait(2.9) == [], "now it counts"
    (verdict,) = fleet.wait(0.3)
    assert isinstance(verdict, RebuildGroup)


def test_who_is_unseen_for_longer_hides_nobody_that_hangs(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 7, REDUCE, 2)
    fleet.move(B, 7, REDUCE, 2)
    fleet.wait(0.1)
    del fleet.where[C]
    (verdict,) = fleet.wait(31.0)
    assert isinstance(verdict, RebuildGroup)


def test_one_computing_is_suspected_whoever_is_unseen(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 7, COMPUTE)
    fleet.move(B, 7, REDUCE, 2)
    fleet.wait(0.1)
    del fleet.where[C]
    assert suspects(fleet.wait(5.0)) == [A], "it waits for nobody"


def test_one_alone_in_an_exchange_has_the_group_rebuilt_first(named: StallJudge) -> None:
    fleet = Fleet(named, (A, B, C))
    fleet.move(A, 7, VOTE, 2)
    fleet.move(B, 8, REDUCE, 3)
    fleet.move(C, 8, REDUCE, 3)
    (verdict,) = fleet.wait(3.2)
    assert isinstance(verdict, RebuildGroup)
    assert verdict.reason.startswith("a/0#0 stands still at step 7")
    fleet.move(B, 7, JOIN)
    fleet.move(C, 7, JOIN)
    (hung,) = fleet.wait(5.0)
    assert isinstance(hung, Suspect), "who does not leave a group that is rebuilt hangs"
    assert hung.member == A


def stands_at(step: int, phase: int, collective: int, *, still_s: float) -> Observation:
    together = phase in (REDUCE, VOTE)
    return Observation(
        (step, phase, collective), still_s, together=together, quiet=Quiet(0.0, None)
    )


def test_a_judge_that_has_just_begun_waits_until_it_has_seen_whom_the_others_wait_for(
    named: StallJudge,
) -> None:
    waiting = {A: stands_at(7, REDUCE, 2, still_s=3.3)}
    assert named.observe(waiting, 100.0, members=(A, B, C)) == ()
    waiting[B] = stands_at(7, REDUCE, 2, still_s=3.4)
    assert named.observe(waiting, 100.1, members=(A, B, C)) == ()
    seen = {**waiting, C: stands_at(7, COMPUTE, 0, still_s=3.5)}
    (verdict,) = named.observe(seen, 100.2, members=(A, B, C))
    assert isinstance(verdict, Suspect)
    assert verdict.member == C


def test_one_that_computes_is_suspected_by_a_judge_that_has_just_begun(named: StallJudge) -> None:
    (verdict,) = named.observe({A: stands_at(7, COMPUTE, 0, still_s=3.3)}, 100.0, members=(A, B, C))
    assert isinstance(verdict, Suspect)
