"""H-3, T-1: a process gives its name up and goes on under the next with what it had committed."""

from __future__ import annotations

import pytest

from danaus.ft.holding import SPOILED
from danaus.ft.step import Stage, StepMachine
from danaus.ft.step_events import (
    Aborted,
    Applied,
    Apply,
    Computed,
    JoinQuorum,
    Learn,
    Reduced,
    Started,
    VotesIn,
)
from danaus.quorum.messages import Learner, MemberId

from .step_parts import E1, E2, E3, A, B, C, announce, ballots, drive, kinds, machine, seat, voting

NEXT = MemberId("a", 0, 2)


def after(member: StepMachine) -> StepMachine:
    """Return the machine of the same process under its next name."""
    next_life = StepMachine(NEXT, 1, 20, fingerprint="f0")
    next_life.take_up(member.renounce())
    return next_life


def committed() -> StepMachine:
    """Return a member that has committed step 1 and is at the next."""
    member = voting(total_steps=20)
    drive(member, VotesIn(E1, 1, ballots()), Applied(1, "f1"))
    assert member.stage is Stage.COMPUTING
    return member


@pytest.mark.parametrize(
    "late",
    [Computed(E1, 1), Reduced(E1, 1, "d"), VotesIn(E1, 1, ballots()), announce(E2), Started()],
)
def test_nothing_is_voted_committed_or_asked_under_a_name_that_was_given_up(late):
    member = voting()
    member.renounce()
    assert member.handle(late) == ()


def test_what_was_open_is_dropped_even_if_it_was_prepared():
    report = after(voting()).report()
    assert report.open_step is None
    assert (report.committed_step, report.fingerprint) == (0, "f0")


def test_what_was_committed_is_reported_with_its_epoch_and_its_quorum():
    report = after(committed()).report()
    assert (report.committed_step, report.fingerprint, report.committed_epoch) == (1, "f1", E1)
    assert report.seen_epoch == E1
    assert report.last_quorum is not None
    assert report.last_quorum.members == (A, B, C), "a service without its disk hears of it"
    assert not report.caught_up


def test_an_epoch_that_was_seen_under_the_old_name_is_not_followed_under_the_new():
    member = after(committed())
    assert kinds(drive(member, Started())) == [JoinQuorum]
    assert drive(member, announce(E1, (NEXT, B, C), 1)) == ()
    assert member.stage is Stage.JOINING


def test_a_step_that_is_half_applied_spoils_the_state():
    member = voting()
    assert kinds(drive(member, VotesIn(E1, 1, ballots()))) == [Apply]
    assert member.renounce().state == SPOILED


def test_a_lesson_spoils_it_but_for_what_it_left_whole():
    member = machine(total_steps=20)
    told = announce(E1, (B, C), 7, learners=(Learner(seat(A), (seat(B),)),), lineage_term=1)
    assert kinds(drive(member, Started(), told)) == [Learn]
    assert member.renounce().state == SPOILED


def test_it_learns_from_what_it_held():
    member = committed()
    member.handle(Aborted(E1, "a rank is lost"))
    next_life = after(member)
    pupil = Learner(seat(NEXT), (seat(B),))
    lineage = next_life.report().lineage_term
    told = announce(E3, (B, C), 4, learners=(pupil,), hold=True, lineage_term=lineage)
    (order,) = drive(next_life, Started(), told)
    assert (order.held_step, order.held_epoch) == (1, E1)
