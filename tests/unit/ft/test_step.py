"""One member's step machine: each rule of T-1, T-2, Q-2, Q-9 and H-1 that it keeps by itself."""

from __future__ import annotations

import msgspec
import pytest

from danaus.core.errors import InternalError
from danaus.ft.step import Stage, StepMachine
from danaus.ft.step_events import (
    Aborted,
    Announced,
    Applied,
    Apply,
    Ballot,
    CastVote,
    ChangeKnown,
    CheckpointWritten,
    Compute,
    Computed,
    ComputeFailed,
    Discard,
    Finish,
    FormGroup,
    JoinQuorum,
    Learn,
    Learned,
    LearnFailed,
    Reduce,
    Reduced,
    ReductionBroken,
    Restore,
    Restored,
    RestoreFailed,
    Serve,
    Started,
    VotesBroken,
    VotesIn,
)
from danaus.quorum.messages import Announcement, Epoch, Learner, MemberId, Outcome, Seat

A, B, C = (MemberId(name, 0, 1) for name in "abc")
E1, E2, E3 = Epoch(1, 1), Epoch(1, 2), Epoch(1, 3)
NONE = Outcome(0, "none", "no step was open")


def seat(member: MemberId) -> Seat:
    return Seat(member, 1, f"unix:/{member}")


def announce(epoch=E1, members=(A, B, C), committed=0, outcome=NONE, **rest) -> Announced:
    rest.setdefault("learners", ())
    rest.setdefault("reason", "told")
    return Announced(
        Announcement(
            epoch=epoch,
            members=tuple(seat(member) for member in members),
            committed_step=committed,
            outcome=outcome,
            **rest,
        )
    )


def ballots(*voters, epoch=E1, step=1, **changed) -> dict[MemberId, Ballot]:
    votes = {
        voter: Ballot(voter, epoch, step, "prepared", "d", "f0") for voter in voters or (A, B, C)
    }
    for name, change in changed.items():
        member = MemberId(name, 0, 1)
        votes[member] = msgspec.structs.replace(votes[member], **change)
    return votes


def machine(**rest) -> StepMachine:
    return StepMachine(A, 1, rest.pop("total_steps", 5), fingerprint="f0", **rest)


def drive(member: StepMachine, *events):
    """Feed every event; return the instructions of the last."""
    done = ()
    for event in events:
        done = member.handle(event)
    return done


def voting(**rest) -> StepMachine:
    member = machine(**rest)
    drive(member, Started(), announce(), Computed(E1, 1), Reduced(E1, 1, "d"))
    assert member.stage is Stage.VOTING
    return member


def kinds(instructions) -> list[type]:
    return [type(one) for one in instructions]


# -- the undisturbed life -----------------------------------------------------------------------


def test_a_fresh_process_joins_with_what_it_holds():
    (join,) = drive(machine(restorable_step=3), Started())
    assert join.report.committed_step == 0
    assert join.report.fingerprint == "f0"
    assert join.report.last_quorum is None
    assert join.report.open_step is None
    assert join.report.restorable_step == 3


def test_one_step_from_announcement_to_the_next():
    member = machine()
    told = announce()
    assert drive(member, Started(), told) == (FormGroup(told.announcement), Compute(E1, 1, 1))
    assert drive(member, Computed(E1, 1)) == (Reduce(E1, 1),)
    (cast,) = drive(member, Reduced(E1, 1, "d"))
    assert cast == CastVote(Ballot(A, E1, 1, "prepared", "d", "f0"))
    assert drive(member, VotesIn(E1, 1, ballots())) == (Apply(1, E1),)
    assert drive(member, Applied(1, "f1")) == (Compute(E1, 2, 1),)
    assert (member.state.step, member.state.fingerprint, member.state.epoch) == (1, "f1", E1)


def test_the_last_step_joins_as_done_and_ends_when_all_are():
    member = voting(total_steps=1)
    drive(member, VotesIn(E1, 1, ballots()))
    (join,) = drive(member, Applied(1, "f1"))
    assert join.report.done
    again = drive(member, announce(E2, committed=1))
    assert kinds(again) == [JoinQuorum]
    assert drive(member, announce(E3, committed=1, finished=True)) == (Finish(1),)
    assert drive(member, announce(Epoch(1, 9))) == ()


# -- voting (T-1) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "refused"),
    [
        (ballots(A, B), False),
        (ballots(b={"vote": "refused", "reason": "nan"}), True),
        (ballots(b={"digest": "other"}), True),
        (ballots(b={"fingerprint": "other"}), True),
        (ballots(b={"epoch": Epoch(1, 0)}), False),
        (ballots(b={"step": 2}), False),
        (ballots(b={"member": C}), False),
    ],
    ids=["missing", "refused", "digest", "fingerprint", "old epoch", "other step", "forged"],
)
def test_without_full_knowledge_the_gradient_is_kept_and_the_member_joins(votes, refused):
    member = voting()
    (join,) = drive(member, VotesIn(E1, 1, votes))
    left = join.report.open_step
    assert isinstance(join, JoinQuorum)
    assert (left.step, left.epoch, left.vote, left.digest) == (1, E1, "prepared", "d")
    assert left.refused_seen is refused
    assert left.reason


def test_ranks_hold_different_shards_and_are_compared_within_a_rank_only():
    pair = [MemberId(name, rank, 1) for name in "ab" for rank in (0, 1)]
    member = StepMachine(pair[0], 2, 5, fingerprint="f0")
    drive(member, Started(), announce(members=pair), Computed(E1, 1), Reduced(E1, 1, "d0"))
    votes = {m: Ballot(m, E1, 1, "prepared", f"d{m.rank}", f"f{m.rank}") for m in pair}
    assert drive(member, VotesIn(E1, 1, votes)) == (Apply(1, E1),)


def test_a_difference_in_another_rank_refuses_the_step_for_all():
    pair = [MemberId(name, rank, 1) for name in "ab" for rank in (0, 1)]
    member = StepMachine(pair[0], 2, 5, fingerprint="f0")
    drive(member, Started(), announce(members=pair), Computed(E1, 1), Reduced(E1, 1, "d0"))
    votes = {m: Ballot(m, E1, 1, "prepared", f"d{m.rank}", f"f{m.rank}") for m in pair}
    votes[pair[3]] = msgspec.structs.replace(votes[pair[3]], fingerprint="flipped")
    (join,) = drive(member, VotesIn(E1, 1, votes))
    assert join.report.open_step.refused_seen
    assert "rank 1" in join.report.open_step.reason


def test_the_veto_can_be_switched_off():
    member = voting(veto=False)
    assert drive(member, VotesIn(E1, 1, ballots(b={"fingerprint": "x"}))) == (Apply(1, E1),)


def test_a_refusal_among_the_votes_that_came_is_reported():
    member = voting()
    (join,) = drive(member, VotesBroken(E1, 1, "lost c", ballots(A, B, b={"vote": "refused"})))
    assert join.report.open_step.refused_seen


def test_votes_that_all_came_commit_though_the_exchange_broke_but_the_group_is_left():
    member = voting()
    assert drive(member, VotesBroken(E1, 1, "lost c", ballots())) == (Apply(1, E1),)
    (join,) = drive(member, Applied(1, "f1"))
    assert join.report.committed_step == 1
    assert join.report.committed_epoch == E1


def test_joining_promises_no_vote_in_the_older_epoch():
    member = voting()
    drive(member, Aborted(E1, "c died", ballots(A, B)))
    assert drive(member, VotesIn(E1, 1, ballots())) == ()
    assert drive(member, Computed(E1, 1)) == ()
    assert drive(member, Reduced(E1, 1, "d")) == ()
    assert member.stage is Stage.JOINING


def test_a_refusal_of_ones_own_is_a_ballot_and_ends_in_joining():
    member = machine()
    (cast,) = drive(
        member, Started(), announce(), Computed(E1, 1), Reduced(E1, 1, "d", refusal="not finite")
    )
    assert (cast.ballot.vote, cast.ballot.digest) == ("refused", "")
    (join,) = drive(member, VotesIn(E1, 1, ballots(a={"vote": "refused"})))
    assert join.report.open_step.vote == "refused"


@pytest.mark.parametrize("event", [ComputeFailed(E1, 1, "oom"), ReductionBroken(E1, 1, "lost c")])
def test_what_breaks_before_the_vote_is_refused_by_joining(event):
    member = machine()
    (join,) = drive(member, Started(), announce(), event)
    assert join.report.open_step.vote == "refused"
    assert join.report.open_step.reason == event.reason


def test_a_broken_reduction_is_refused():
    member = machine()
    (join,) = drive(
        member, Started(), announce(), Computed(E1, 1), ReductionBroken(E1, 1, "lost c")
    )
    assert join.report.open_step.vote == "refused"


def test_a_state_found_changed_before_the_vote_is_what_is_voted_and_reported():
    member = machine()
    drive(member, Started(), announce(), Computed(E1, 1))
    (cast,) = drive(member, Reduced(E1, 1, "d", fingerprint="flipped"))
    assert cast.ballot.fingerprint == "flipped"
    assert member.report().fingerprint == "flipped"


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


# -- pending changes (Q-2) ------------------------------------------------------------------------


def test_a_change_known_before_the_vote_is_named_on_it_and_followed_after_the_step():
    member = machine()
    drive(member, Started(), announce(), ChangeKnown(E1, "d is ready"), Computed(E1, 1))
    (cast,) = drive(member, Reduced(E1, 1, "d"))
    assert cast.ballot.change_pending == "d is ready"
    drive(member, VotesIn(E1, 1, ballots()))
    assert kinds(drive(member, Applied(1, "f1"))) == [JoinQuorum]


def test_a_change_named_by_another_is_followed_after_the_step():
    member = voting()
    drive(member, VotesIn(E1, 1, ballots(b={"change_pending": "d is ready"})))
    assert kinds(drive(member, Applied(1, "f1"))) == [JoinQuorum]


def test_a_change_known_after_the_vote_is_named_on_the_next_so_that_all_turn_at_once():
    member = voting()
    drive(member, ChangeKnown(E1, "d is ready"), VotesIn(E1, 1, ballots()))
    assert drive(member, Applied(1, "f1")) == (Compute(E1, 2, 1),)
    drive(member, Computed(E1, 2))
    (cast,) = drive(member, Reduced(E1, 2, "d"))
    assert cast.ballot.change_pending == "d is ready"


def test_a_change_of_an_older_quorum_is_forgotten():
    member = machine()
    drive(member, Started(), announce(E2), ChangeKnown(E1, "d is ready"), Computed(E2, 1))
    (cast,) = drive(member, Reduced(E2, 1, "d"))
    assert cast.ballot.change_pending == ""


# -- healing (H-1, H-5) ---------------------------------------------------------------------------


def learner_of(member: MemberId, *donors: MemberId) -> Learner:
    return Learner(seat(member), tuple(seat(donor) for donor in donors))


def test_a_learner_fetches_and_joins_with_what_it_got():
    member = machine()
    pupil = learner_of(A, B, C)
    told = announce(E1, (B, C), 7, learners=(pupil,), hold=True)
    assert drive(member, Started(), told) == (Learn(E1, 7, pupil),)
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
    assert serve == Serve(E1, 0, (mine,), None)
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
    assert serve == Serve(E2, 1, (learner_of(C, A),), E1)
    assert join.report.committed_step == 1


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


@pytest.mark.parametrize(("written", "offered"), [("f1", 1), ("flipped", 0)])
def test_a_checkpoint_is_offered_once_its_fingerprint_was_agreed_on(written, offered):
    member = voting()
    drive(member, VotesIn(E1, 1, ballots()), CheckpointWritten(1, written), Applied(1, "f1"))
    assert member.report().restorable_step == 0
    drive(member, Computed(E1, 2), Reduced(E1, 2, "d"))
    drive(
        member,
        VotesIn(
            E1,
            2,
            {v: msgspec.structs.replace(b, step=2, fingerprint="f1") for v, b in ballots().items()},
        ),
    )
    assert member.report().restorable_step == offered


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
