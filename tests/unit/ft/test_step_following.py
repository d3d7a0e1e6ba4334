"""One member's step machine: how it follows announcements, learns, serves and restores."""

from __future__ import annotations

import pytest

from danaus.core.errors import InternalError
from danaus.ft.course import lent_steps
from danaus.ft.step import Stage, StepMachine
from danaus.ft.step_events import (
    Aborted,
    Applied,
    Apply,
    CheckpointWritten,
    Compute,
    Discard,
    Finish,
    FormGroup,
    JoinQuorum,
    Learn,
    Learned,
    LearnFailed,
    Restore,
    Restored,
    RestoreFailed,
    Serve,
    Started,
    VotesBroken,
    VotesIn,
)
from danaus.quorum.messages import Epoch, Learner, MemberId, Outcome, StepReport, Trail

from .step_parts import E1, E2, E3, A, B, C, announce, ballots, drive, kinds, machine, seat, voting

# -- following the announcement -------------------------------------------------------------------


def test_commit_by_announcement_applies_the_kept_gradient_under_the_epoch_of_its_vote():
    member = voting()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    told = announce(E2, (A, B), 1, Outcome(1, "commit", "all prepared"))
    assert drive(member, told) == (Apply(1, E1),)
    assert kinds(drive(member, Applied(1, "f1"))) == [FormGroup, Compute]
    assert member.state.epoch == E1


def test_discard_by_announcement_tries_the_same_step_again():
    member = voting()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    told = announce(E2, (A, B), 0, Outcome(1, "discard", "b had not voted"))
    discard, form, compute = drive(member, told)
    assert discard == Discard(1, E1, "b had not voted")
    assert form == FormGroup(told.announcement)
    assert compute == Compute(E2, 1, 2)
    assert member.state.step == 0


@pytest.mark.parametrize("epoch", [E1, Epoch(1, 0), Epoch(0, 7)])
def test_an_old_or_repeated_announcement_is_not_followed(epoch):
    member = voting()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    assert drive(member, announce(epoch, (A, B), 1, Outcome(1, "commit", "late"))) == ()
    assert member.stage is Stage.JOINING


def test_an_announcement_that_answers_no_ask_is_never_followed():
    member = voting()
    unasked = announce(E2, (A, B))
    assert drive(member, unasked) == ()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    assert drive(member, unasked) == ()


def test_the_end_of_the_run_heard_while_busy_is_followed_once_it_comes_again():
    """It is the last epoch: what is asked later is answered by it, and by nothing newer."""
    member = machine()
    restore = announce(E1, start="restore")
    (order,) = drive(member, Started(), restore)
    end = announce(E2, (B, C), 5, finished=True, learners=(Learner(seat(A), ()),))
    assert drive(member, end) == ()
    (join,) = drive(member, Restored(order.epoch, 0, "f0"), Aborted(E1, "b and c left it"))
    assert join.report.seen_epoch == E1
    assert drive(member, end)[-1] == Finish(0)


@pytest.mark.parametrize(
    "told",
    [
        announce(E2, (A, B), 4),
        announce(E2, (A, B), 0, Outcome(1, "commit", "?")),
    ],
)
def test_an_announcement_that_contradicts_the_member_ends_the_process(told):
    member = voting()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    with pytest.raises(InternalError, match="T-1"):
        member.handle(told)


def test_a_commit_of_a_step_that_was_not_prepared_ends_the_process():
    member = machine()
    drive(member, Started(), announce(), Aborted(E1, "c died"))
    with pytest.raises(InternalError, match="T-1"):
        member.handle(announce(E2, (A, B), 1, Outcome(1, "commit", "?")))


def test_a_replica_without_all_its_ranks_ends_the_process():
    member = StepMachine(A, 2, 5, fingerprint="f0")
    member.handle(Started())
    with pytest.raises(InternalError, match="Q-2"):
        member.handle(announce(members=(A, B)))


def test_an_announcement_without_this_process_changes_nothing():
    member = machine()
    assert drive(member, Started(), announce(members=(B, C))) == ()
    assert member.report().last_quorum is None


def test_an_abort_drops_the_computation_at_once():
    member = machine()
    (join,) = drive(member, Started(), announce(), Aborted(E1, "c died"))
    assert join.report.open_step.vote == "none"
    assert drive(machine(), Started(), Aborted(E1, "c died")) == ()


def test_an_abort_of_another_epoch_is_ignored():
    member = machine()
    assert drive(member, Started(), announce(E2), Aborted(E1, "c died")) == ()


def test_an_abort_while_applying_is_obeyed_after_it():
    member = voting()
    drive(member, VotesIn(E1, 1, ballots()), Aborted(E1, "c died"))
    assert kinds(drive(member, Applied(1, "f1"))) == [JoinQuorum]


# -- healing (H-1, H-5) ---------------------------------------------------------------------------


def learner_of(member: MemberId, *donors: MemberId) -> Learner:
    return Learner(seat(member), tuple(seat(donor) for donor in donors))


def test_a_learner_fetches_and_joins_with_what_it_got():
    member = machine()
    pupil = learner_of(A, B, C)
    told = announce(E1, (B, C), 7, learners=(pupil,), hold=True, lineage_term=1)
    assert drive(member, Started(), told) == (Learn(E1, 7, pupil, 1),)
    (join,) = drive(member, Learned(E1, 7, "f7", Epoch(1, 0)))
    assert (join.report.committed_step, join.report.fingerprint) == (7, "f7")
    assert join.report.committed_epoch == Epoch(1, 0)


def test_a_learner_that_is_not_waited_for_any_more_asks_again_without_a_state():
    member = machine()
    told = announce(E1, (B, C), 7, learners=(learner_of(A, B),), hold=True)
    (join,) = drive(member, Started(), told, Aborted(E1, "the members wait no longer"))
    assert join.report.fingerprint == ""
    assert drive(member, Learned(E1, 7, "f7")) == ()


def test_a_failed_transfer_leaves_nothing_that_counts():
    member = machine()
    told = announce(E1, (B, C), 7, learners=(learner_of(A, B),), hold=True)
    (join,) = drive(member, Started(), told, LearnFailed(E1, "b died"))
    assert (join.report.committed_step, join.report.fingerprint) == (0, "")
    with pytest.raises(InternalError, match="T-1"):
        member.handle(announce(E2, (A, B), 0))


def test_a_learner_drops_the_step_that_it_kept_and_never_applies_it():
    member = voting()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    outcome = Outcome(1, "commit", "of a later attempt")
    told = announce(E3, (B, C), 1, outcome, learners=(learner_of(A, B),), hold=True)
    discard, learn = drive(member, told)
    assert isinstance(discard, Discard)
    assert isinstance(learn, Learn)


def test_a_learner_without_donors_asks_again():
    member = machine()
    told = announce(E1, (B, C), 7, learners=(learner_of(A),))
    assert kinds(drive(member, Started(), told)) == [JoinQuorum]
    assert member.report().fingerprint == "f0"


def test_members_serve_and_wait_at_the_boundary_while_held():
    member = machine()
    mine, other = learner_of(C, A, B), learner_of(MemberId("d", 0, 1), B)
    told = announce(E1, (A, B), learners=(mine, other), hold=True)
    serve, join = drive(member, Started(), told)
    assert serve == Serve(E1, 0, (mine,), None, "f0")
    assert isinstance(join, JoinQuorum)
    assert join.report.open_step is None


def test_members_that_are_not_held_serve_and_go_on():
    member = machine()
    told = announce(E1, (A, B), learners=(learner_of(C, A),))
    assert kinds(drive(member, Started(), told)) == [Serve, FormGroup, Compute]


def test_a_member_that_must_apply_first_serves_the_step_after_it():
    member = voting()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    told = announce(
        E2, (A, B), 1, Outcome(1, "commit", "."), learners=(learner_of(C, A),), hold=True
    )
    assert drive(member, told) == (Apply(1, E1),)
    serve, join = drive(member, Applied(1, "f1"))
    assert serve == Serve(E2, 1, (learner_of(C, A),), E1, "f1")
    assert join.report.committed_step == 1


def trail_of(member: MemberId, *donors: MemberId, epoch: Epoch = E1, step: int = 7) -> Learner:
    return Learner(seat(member), tuple(seat(donor) for donor in donors), Trail(epoch, step))


def caught_up(member: StepMachine, *, step: int = 9) -> StepReport:
    """Let a new process trail to a step; return what it joins with."""
    told = announce(E1, (B, C), 7, learners=(trail_of(A, B),), lineage_term=1)
    drive(member, Started(), told)
    (join,) = drive(member, Learned(E1, step, f"f{step}", Epoch(1, 0)))
    return join.report


def test_a_learner_that_trails_begins_where_its_donors_began_and_joins_where_it_has_come_to():
    member = machine()
    told = announce(E2, (B, C), 20, learners=(trail_of(A, B),), lineage_term=1)
    (order,) = drive(member, Started(), told)
    assert order == Learn(E2, 7, trail_of(A, B), 1, None)
    (join,) = drive(member, Learned(E2, 23, "f23", Epoch(1, 0)))
    report = join.report
    assert (report.committed_step, report.fingerprint, report.caught_up) == (23, "f23", True)


def test_one_that_caught_up_fetches_only_what_is_missing():
    member = machine()
    assert caught_up(member).lineage_term == 1
    told = announce(E2, (B, C), 10, learners=(learner_of(A, B),), hold=True, lineage_term=1)
    (order,) = drive(member, told)
    assert order == Learn(E2, 10, learner_of(A, B), 1, 9, Epoch(1, 0))
    (join,) = drive(member, Learned(E2, 10, "f10", Epoch(1, 1)))
    assert not join.report.caught_up


@pytest.mark.parametrize(
    "told",
    [
        announce(E2, (B, C), 10, learners=(learner_of(A, B),), hold=True, lineage_term=2),
        announce(E2, (B, C), 8, learners=(learner_of(A, B),), hold=True, lineage_term=1),
    ],
    ids=["of another lineage", "ahead of the members"],
)
def test_a_state_from_which_no_gradient_leads_on_is_fetched_anew(told):
    member = machine()
    caught_up(member)
    (order,) = drive(member, told)
    assert order.held_step is None


@pytest.mark.parametrize("trails", [False, True])
def test_a_committed_state_that_fell_behind_is_led_on_from_if_the_donors_can(trails):
    """It may have bits of its own: it is held against the donors' before it counts."""
    member = machine(total_steps=20)
    entered = announce(E1, (A, B, C), 0, lineage_term=1)
    drive(member, Started(), entered, Aborted(E1, "a rank is lost"))
    pupil = trail_of(A, B, epoch=E2, step=10) if trails else learner_of(A, B)
    told = announce(E2, (B, C), 10, learners=(pupil,), hold=not trails, lineage_term=1)
    *_, order = drive(member, told)
    assert (order.step, order.held_step) == (10, 0)


def test_one_that_entered_has_caught_up_no_more():
    member = machine(total_steps=20)
    caught_up(member)
    entered = announce(E2, (A, B, C), 9, lineage_term=1)
    assert kinds(drive(member, entered)) == [FormGroup, Compute]
    (join,) = drive(member, Aborted(E2, "c died"))
    assert not join.report.caught_up


def test_a_learner_that_trails_is_left_alone_by_later_epochs():
    member = machine()
    told = announce(E1, (B, C), 7, learners=(trail_of(A, B, C),))
    drive(member, Started(), told)
    assert drive(member, announce(E2, (B,), 9, learners=(trail_of(A, B),))) == ()
    assert member.stage is Stage.LEARNING
    assert kinds(drive(member, Learned(E1, 9, "f9"))) == [JoinQuorum]


def test_a_learner_is_served_once_and_what_it_needs_is_lent_on():
    member = machine()
    mine, other = trail_of(C, A, B, step=0), trail_of(MemberId("d", 0, 1), B, step=0)
    told = announce(E1, (A, B), learners=(mine, other))
    serve, _, _ = drive(member, Started(), told)
    assert serve == Serve(E1, 0, (mine,), None, "f0")
    assert lent_steps(told.announcement, A) == {0}
    later = announce(E2, (A,), learners=(mine,))
    assert kinds(drive(member, Aborted(E1, "b died"), later)) == [Discard, FormGroup, Compute]
    assert lent_steps(later.announcement, A) == {0}
    assert lent_steps(announce(E3, (A,), learners=(learner_of(C, A),)).announcement, A) == set()


def test_restoring_drops_the_open_step_and_stands_on_the_new_lineage():
    member = voting()
    drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B)))
    term2 = Epoch(2, 1)
    outcome = Outcome(1, "discard", "diverged")
    told = announce(term2, (A, B), 0, outcome, start="restore", lineage_term=2)
    discard, restore = drive(member, told)
    assert isinstance(discard, Discard)
    assert restore == Restore(term2, 0, "told")
    assert kinds(drive(member, Restored(term2, 0, "f0"))) == [FormGroup, Compute]
    assert member.state.lineage_term == 2


def test_a_checkpoint_is_offered_once_a_member_tells_that_it_is_complete():
    member = voting()
    drive(member, VotesIn(E1, 1, ballots()), Applied(1, "f1"))
    assert member.report().restorable_step == 0
    drive(member, CheckpointWritten(1))
    assert member.report().restorable_step == 1
    drive(member, CheckpointWritten(0))  # of one that does not know it yet
    assert member.report().restorable_step == 1


def test_checkpoints_newer_than_the_one_restored_are_no_longer_offered():
    member = machine(restorable_step=4)
    drive(member, Started(), announce(Epoch(2, 1), committed=2, start="restore"))
    drive(member, Restored(Epoch(2, 1), 2, "f"))
    assert member.report().restorable_step == 2


def test_a_checkpoint_that_cannot_be_loaded_is_no_longer_offered():
    member = machine(restorable_step=4)
    told = announce(E1, committed=4, start="restore")
    (join,) = drive(member, Started(), told, RestoreFailed(E1, "damaged", 2))
    assert join.report.restorable_step == 2
    assert join.report.fingerprint == ""


def test_a_lesson_that_is_broken_off_leaves_the_committed_state_that_it_came_to():
    for broken in (Aborted, LearnFailed):
        member = machine(total_steps=20)
        told = announce(E1, (B, C), 7, learners=(trail_of(A, B),), lineage_term=1)
        held = Learned(E1, 9, "f9", Epoch(1, 0))
        (join,) = drive(member, Started(), told, broken(E1, "b died", held=held))
        assert (join.report.committed_step, join.report.fingerprint) == (9, "f9")
        assert (join.report.lineage_term, join.report.caught_up) == (1, False)
