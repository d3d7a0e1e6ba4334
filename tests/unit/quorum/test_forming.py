"""Forming quorums: the open step's outcome, and learners."""

from __future__ import annotations

from danaus.quorum.events import (
    Abort,
    QuorumSettings,
)
from danaus.quorum.messages import Epoch

from .quorum_cases import Town, learners, learning, names

# -- the open step ------------------------------------------------------------------------------


def test_a_prepared_step_is_committed_with_a_dead_member_and_the_outcome_is_saved() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    for peer in (a, b):
        peer.begin(1, "prepared", "d")
    town.die(c)
    town.join(a, b)
    told = town.last
    assert (told.outcome.verdict, told.outcome.step, told.committed_step) == ("commit", 1, 1)
    assert told.outcome.epoch == Epoch(1, 1)
    assert town.saved is not None
    assert town.saved.announcement == told
    assert a.report.committed_step == 1


def test_a_member_that_has_not_voted_discards() -> None:
    town = Town()
    a, b = town.start("a", "b")
    a.begin(1, "prepared", "d")
    b.begin(1)
    town.join(a, b)
    assert (town.last.outcome.verdict, town.last.committed_step) == ("discard", 0)


def test_ranks_of_one_replica_settle_on_one_step() -> None:
    town = Town()
    a0, a1 = (town.peer("a", rank, num_ranks=2) for rank in (0, 1))
    town.register(a0, a1)
    town.join(a0, a1)
    a0.commit(1)
    a1.begin(1, "prepared", "d")
    town.join(a0, a1)
    assert (town.last.outcome.verdict, town.last.committed_step) == ("commit", 1)
    assert a1.report.committed_step == 1


def test_an_outcome_that_one_member_never_followed_stands() -> None:
    town = Town()
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.begin(1, "prepared", "d")
    kept = b.report
    town.join(a, b)
    outcome = town.last.outcome
    # b was told while it did not ask: it knows of the quorum, and will never follow it.
    b.report = kept
    b.become(seen_epoch=town.last.epoch)
    town.die(a)
    town.join(b)
    assert town.last.outcome == outcome
    assert b.report.committed_step == 1


def test_a_gradient_kept_from_another_attempt_is_not_applied() -> None:
    town = Town(QuorumSettings(join_limit_s=0.5))
    a, b, c = town.start("a", "b", "c")
    c.begin(1, "prepared", "of the first attempt")
    a.begin(1)
    b.begin(1)
    town.join(a, b)
    town.wait(1.0)  # c is left behind, the step is tried again and committed without it
    assert town.last.outcome.verdict == "discard"
    a.commit(1)
    b.commit(1)
    town.join(c)
    town.join(a, b)
    assert learners(town.last) == ["c"]
    assert names(town.last) == ["a", "b"]


# -- learners -----------------------------------------------------------------------------------


def test_a_learner_is_waited_for_and_enters_with_the_members_state() -> None:
    town = Town()
    a, b, c = learning(town)
    (learner,) = town.last.learners
    assert [str(d.member) for d in learner.donors] == ["a/0#0", "b/0#0"]
    town.join(a, b)
    assert a.asking
    assert "c learns" in a.waiting
    c.become(committed_step=5, fingerprint="f5", committed_epoch=a.report.committed_epoch)
    town.join(c)
    assert (names(a.told), town.last.hold, town.last.committed_step) == (["a", "b", "c"], False, 5)


def test_the_death_of_a_learner_holds_up_nobody() -> None:
    town = Town()
    a, b, c = learning(town)
    town.join(a, b)
    town.die(c)
    assert (names(a.told), town.last.hold) == (["a", "b"], False)
    assert town.last.outcome.verdict == "none"
    assert b.told == a.told


def test_a_hung_learner_is_waited_for_up_to_the_limit_and_told_to_ask_again() -> None:
    town = Town()
    a, b, c = learning(town)
    town.join(a, b)
    town.wait(9.0)
    assert a.asking
    town.wait(1.5)
    assert (names(a.told), town.last.hold) == (["a", "b"], False)
    assert "the members wait no longer for it to learn" in [
        o.message.reason for o in town.all(Abort)
    ]
    assert c.aborted


def test_the_death_of_a_member_while_others_wait_goes_unnoticed_by_the_learner() -> None:
    town = Town()
    a, b, c = learning(town)
    town.join(a)
    town.die(b)
    assert a.asking
    c.become(committed_step=5, fingerprint="f5")
    town.join(c)
    assert names(a.told) == ["a", "c"]


def test_a_learner_that_fails_is_given_another_donor_and_then_has_to_pause() -> None:
    town = Town()
    a, b, c = learning(town)
    first = town.last.learners[0].donors[0]
    c.become(fingerprint="", committed_step=0)
    town.join(a, b, c)
    assert town.last.hold
    assert town.last.learners[0].donors[0] != first
    town.join(a, b, c)
    assert not town.last.hold
    assert learners(town.last) == []
    assert c.asking
    assert a.pending == ""
    town.wait(1.5)
    assert a.pending == "c#0 is ready to join"


def test_a_state_that_is_wrong_twice_is_not_trusted() -> None:
    town = Town()
    a, b, c = learning(town)
    c.become(committed_step=5, fingerprint="wrong")
    town.join(a, b, c)
    assert learners(town.last) == ["c"]
    town.join(a, b, c)
    assert (names(a.told), town.last.hold) == (["a", "b"], False)
    assert c.refused is not None
    assert "wrong state" in c.refused.reason


def test_donors_are_the_same_rank_of_the_members() -> None:
    town = Town()
    members = [town.peer(name, rank, num_ranks=2) for name in "ab" for rank in (0, 1)]
    town.register(*members)
    town.join(*members)
    for peer in members:
        peer.commit(3)
    new = [town.peer("c", rank, num_ranks=2) for rank in (0, 1)]
    town.register(*new)
    town.join(*new, *members)
    first = {str(one.seat.member): str(one.donors[0].member) for one in town.last.learners}
    assert first == {"c/0#0": "a/0#0", "c/1#0": "b/1#0"}


def test_a_quorum_below_its_least_size_may_wait_for_a_learner_but_takes_no_step() -> None:
    town = Town(QuorumSettings(min_replicas=2))
    a, b = town.start("a", "b")
    a.commit(5)
    b.commit(5)
    town.die(b)
    town.join(a)
    assert "1 of 2 needed" in a.waiting
    new = town.peer("b", incarnation=1)
    town.register(new)
    town.join(new)
    assert (names(a.told), learners(a.told), town.last.hold) == (["a"], ["b"], True)
    town.join(a)
    new.become(committed_step=5, fingerprint="f5")
    town.join(new)
    assert (names(a.told), town.last.hold) == (["a", "b"], False)


def test_members_that_take_long_over_a_step_wait_for_each_other_though_a_joiner_has_waited() -> (
    None
):
    town = Town(QuorumSettings(join_limit_s=15.0))
    a, b, c = town.start("a", "b", "c")
    d = town.peer("d")
    town.register(d)
    town.join(d)
    town.wait(20.0)
    town.join(a, b)
    town.wait(0.25)
    assert a.asking, "c is on its way"
    town.join(c)
    assert names(town.last) == ["a", "b", "c", "d"]
