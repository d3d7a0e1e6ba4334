"""One member's step machine: what it computes, votes and commits (T-1, T-2, Q-2, Q-9)."""

from __future__ import annotations

import msgspec
import pytest

from danaus.ft.step import Stage, StepMachine
from danaus.ft.step_events import (
    Aborted,
    Applied,
    Apply,
    Ballot,
    CastVote,
    ChangeKnown,
    Compute,
    Computed,
    ComputeFailed,
    Finish,
    FormGroup,
    JoinQuorum,
    Reduce,
    Reduced,
    ReductionBroken,
    Started,
    VotesBroken,
    VotesIn,
)
from danaus.quorum.messages import Epoch, Learner, MemberId

from .step_parts import (
    E1,
    E2,
    E3,
    A,
    B,
    C,
    announce,
    ballots,
    drive,
    kinds,
    machine,
    seat,
    voting,
)

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
    finish = Finish(1, save=True, epoch=E1)
    assert drive(member, announce(E3, committed=1, finished=True)) == (finish,)
    assert drive(member, announce(Epoch(1, 9))) == ()


def test_one_that_was_outvoted_in_the_last_step_ends_without_its_state():
    member = voting(total_steps=1)
    drive(member, VotesIn(E1, 1, ballots()))
    drive(member, Applied(1, "f1"))
    end = announce(E2, (B, C), 1, finished=True, learners=(Learner(seat(A), ()),))
    assert drive(member, end) == (Finish(0),)
    assert member.state.step == 0


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
