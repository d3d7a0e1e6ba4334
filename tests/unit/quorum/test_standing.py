"""The quorum that stands: changes, deaths, silence, fences, repeated and late messages."""

from __future__ import annotations

import msgspec
import pytest

from danaus.quorum.events import (
    Abort,
    Announce,
    Beaten,
    DeathReported,
    Disconnected,
    Fence,
    HangSuspected,
    JoinAsked,
    NotifyPending,
    ProbeProcess,
    QuorumSettings,
    Registered,
    TimePassed,
    Unreachable,
    WakeAt,
)
from danaus.quorum.messages import Epoch, Join

from .quorum_cases import Peer, Town, fenced, learners, names


def test_a_joiner_makes_members_turn_to_the_service_once_they_have_finished_their_step() -> None:
    town = Town()
    a, b = town.start("a", "b")
    c = town.peer("c")
    town.register(c)
    assert a.pending == b.pending == ""
    town.join(c)
    assert a.pending == b.pending == "c#0 is ready to join"
    assert a.aborted == b.aborted == ""
    town.join(a, b)
    assert a.told == b.told == c.told
    assert names(c.told) == ["a", "b", "c"]


def test_pending_is_told_once_and_again_only_to_those_who_beat() -> None:
    town = Town()
    a, b = town.start("a", "b")
    c = town.peer("c")
    town.register(c)
    out = town.join(c)
    assert [o.members for o in out if isinstance(o, NotifyPending)] == [(a.member, b.member)]
    assert not [o for o in town.do(TimePassed()) if isinstance(o, NotifyPending)]
    assert a.told is not None
    out = town.do(Beaten(a.member, a.told.epoch))
    assert [o.members for o in out if isinstance(o, NotifyPending)] == [(a.member,)]


def test_a_death_is_told_at_once_and_not_waited_for() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    out = town.do(DeathReported(c.member, "ended by SIGKILL"))
    (abort,) = [o for o in out if isinstance(o, Abort)]
    assert abort.members == (a.member, b.member)
    assert abort.message.dead == (c.member,)
    assert abort.message.epoch == Epoch(1, 1)
    town.join(a)
    assert a.asking
    assert "waiting for b" in a.waiting
    town.join(b)
    assert names(a.told) == names(b.told) == ["a", "b"]
    assert "c is dead (reported)" in town.last.reason


def test_a_replacement_that_only_starts_is_not_waited_for() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    town.do(DeathReported(c.member, "ended by SIGKILL"))
    town.register(town.peer("c", incarnation=1))
    town.join(a, b)
    assert names(town.last) == ["a", "b"]


def test_a_broken_session_is_a_reason_to_look() -> None:
    town = Town()
    a, _ = town.start("a", "b")
    out = town.do(Disconnected(a.member))
    assert [o.seat for o in out if isinstance(o, ProbeProcess)] == [a.seat]
    assert town.last.epoch == Epoch(1, 1)


def without_agents(town: Town, *peers: Peer) -> None:
    """Let nobody be able to look after these."""
    for peer in peers:
        peer.seat = msgspec.structs.replace(peer.seat, agent_address="")
        town.register(peer)


def test_a_process_that_nobody_can_look_after_has_a_second_to_come_back() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    without_agents(town, a, b, c)
    town.do(Disconnected(c.member))
    town.join(a, b)
    town.wait(0.75, silent=(c,))
    assert a.asking
    (fence,) = [said for said in town.wait(0.5, silent=(c,)) if isinstance(said, Fence)]
    assert (fence.seat.member, fence.reason) == (c.member, "its connection closed 1.2 s ago")
    town.do(Unreachable(c.member, fence.reason))
    assert names(town.last) == ["a", "b"]


def test_a_process_that_comes_back_in_time_is_waited_for() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    without_agents(town, a, b, c)
    town.do(Disconnected(c.member))
    town.join(a, b)
    town.wait(0.75, silent=(c,))
    town.register(c)
    town.wait(3.0)
    assert a.asking
    town.join(c)
    assert names(town.last) == ["a", "b", "c"]


def test_a_repeated_or_overtaken_join_is_ignored() -> None:
    town = Town()
    a, b = town.start("a", "b")
    first = Join(a.seat, a.report, 1)
    town.do(DeathReported(b.member, "gone"))
    town.join(a)
    assert town.last.epoch == Epoch(1, 2)
    for number in (1, 2):
        town.do(JoinAsked(Join(a.seat, first.report, number)))
    town.wait(2.0)
    assert town.last.epoch == Epoch(1, 2)


def test_a_join_that_crossed_its_announcement_gets_it_again() -> None:
    town = Town()
    a, b = town.start("a", "b")
    before = a.report
    town.do(DeathReported(b.member, "gone"))
    town.join(a)
    assert a.told is not None
    told = a.told
    a.report = before  # what told it of the second quorum was lost
    (again,) = [o for o in town.join(a) if isinstance(o, Announce)]
    assert again.again
    assert again.announcement == told
    assert town.last.epoch == told.epoch


def test_one_that_beats_in_an_older_epoch_is_told_again() -> None:
    town = Town()
    a, _ = town.start("a", "b")
    assert a.told is not None
    (again,) = [o for o in town.do(Beaten(a.member, Epoch(0, 9))) if isinstance(o, Announce)]
    assert (again.to, again.again) == ((a.member,), True)


def test_one_left_behind_is_told_that_its_epoch_has_ended() -> None:
    town = Town(QuorumSettings(join_limit_s=1.0))
    a, b, c = town.start("a", "b", "c")
    town.join(a, b)
    town.wait(1.5)
    assert names(town.last) == ["a", "b"]
    assert "c did not ask within 1 s" in town.last.reason
    assert "has ended" in c.aborted
    town.join(c)
    assert a.pending == "c#0 is ready to join"


def test_members_that_do_not_follow_the_first_are_told_to_leave() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.join(a)
    assert b.aborted == ""
    town.wait(1.25)
    assert b.aborted == "a/0#0 turned to the service"
    assert not town.machine.is_lost(b.member)


def test_a_silent_member_is_fenced_and_then_left_behind() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.join(a)
    out = town.wait(5.5, silent=(b,))
    assert fenced(out) == ["b/0#0"]
    assert "fencing b/0#0" in a.waiting
    town.wait(2.0, silent=(b,))
    assert names(a.told) == ["a"]
    assert "b is out of reach" in town.last.reason


def test_a_fence_that_succeeds_ends_the_wait() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.join(a)
    town.do(HangSuspected(b.member, "stands still"))
    assert a.asking
    town.do(DeathReported(b.member, "ended by SIGKILL"))
    assert names(a.told) == ["a"]


def test_a_hang_is_fenced_with_its_stacks_saved_once() -> None:
    town = Town()
    _, b = town.start("a", "b")
    out = town.do(HangSuspected(b.member, "stands still"))
    out += town.do(HangSuspected(b.member, "stands still"))
    assert fenced(out) == ["b/0#0"]
    assert [o.save_stacks for o in out if hasattr(o, "save_stacks")] == [True]


def test_one_without_an_agent_is_out_of_reach_at_once_and_may_come_back_as_a_learner() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.do(HangSuspected(b.member, "stands still"))
    town.do(Unreachable(b.member, "no host agent"))
    assert "out of reach" in a.aborted
    town.join(a)
    assert names(a.told) == ["a"]
    a.commit(4)
    town.join(b)
    assert a.pending == "b#0 is ready to join"
    town.join(a)
    assert learners(a.told) == ["b"]


def test_a_service_that_hears_nobody_suspects_nobody() -> None:
    town = Town()
    a, b = town.start("a", "b")
    assert fenced(town.wait(30.0, silent=(a, b))) == []


def test_a_time_in_which_the_service_did_not_run_is_nobodys_silence() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.now += 60.0  # stopped and continued
    assert a.told is not None
    out = town.do(Beaten(a.member, a.told.epoch)) + town.do(TimePassed())
    assert fenced(out) == []
    assert fenced(town.wait(5.5, silent=(b,))) == ["b/0#0"]


def test_a_time_in_which_the_service_did_not_run_is_nobodys_delay() -> None:
    town = Town(QuorumSettings(join_limit_s=60.0))
    a, b, c = town.start("a", "b", "c")
    town.join(a, b)
    town.now += 90.0  # stopped and continued; what c said meanwhile is not read yet
    for peer in (a, b, c):
        town.do(Beaten(peer.member, peer.told.epoch if peer.told else None))
    assert a.asking
    town.join(c)
    assert names(town.last) == ["a", "b", "c"]


def test_an_older_incarnation_is_refused_and_fenced() -> None:
    town = Town()
    a, b = town.start("a", "b")
    newer = town.peer("b", incarnation=1)
    town.register(newer)
    assert fenced(town.log) == ["b/0#0"]
    town.join(b)
    assert b.refused is not None
    assert "replaced by b#1" in b.refused.reason
    town.do(DeathReported(b.member, "ended by SIGKILL"))
    assert "b lost rank 0" in a.aborted


def test_a_newer_incarnation_does_not_confirm_that_all_are_dead() -> None:
    town = Town()
    (a,) = town.start("a")
    a.commit(3)
    newer = town.peer("a", incarnation=1)
    newer.become(restorable_step=2)
    town.register(newer)
    town.join(newer)
    town.wait(5.0, silent=(a,))
    assert newer.asking
    assert "no member of the last quorum has joined or is confirmed dead" in newer.waiting
    town.do(DeathReported(a.member, "ended by SIGKILL"))
    assert newer.told is not None
    assert (newer.told.start, newer.told.committed_step) == ("restore", 2)


def test_a_replica_joins_with_all_its_ranks_and_dies_with_one() -> None:
    town = Town()
    ranks = [town.peer(name, rank, num_ranks=2) for name in "ab" for rank in (0, 1)]
    a0, a1, b0, b1 = ranks
    town.register(*ranks)
    town.join(a0, b0, b1)
    assert a0.asking
    town.join(a1)
    assert [str(s.member) for s in town.last.members] == ["a/0#0", "a/1#0", "b/0#0", "b/1#0"]
    out = town.do(DeathReported(b1.member, "ended by SIGKILL"))
    assert fenced(out) == ["b/0#0"]
    assert "b lost rank 1: ended by SIGKILL" in a0.aborted
    assert b0.aborted == ""  # of the lost replica: it is to die, not to follow
    town.join(a0, a1)
    assert names(town.last) == ["a"]


def test_a_half_joined_replica_holds_up_nobody_whose_quorum_is_complete() -> None:
    town = Town()
    (a,) = town.start("a")
    half = town.peer("b", 0, num_ranks=2)
    town.register(half, town.peer("b", 1, num_ranks=2))
    town.join(half)
    assert a.pending == ""
    town.join(a)
    assert names(a.told) == ["a"]
    assert half.asking


def test_it_always_says_when_to_wake_it() -> None:
    town = Town()
    a, _ = town.start("a", "b")
    for event in (Registered(a.seat), TimePassed(), Disconnected(a.member)):
        (wake,) = [o for o in town.do(event) if isinstance(o, WakeAt)]
        assert town.now < wake.at <= town.now + 1.0


@pytest.mark.parametrize("expected", [0, 3])
def test_the_first_quorum_waits_for_those_that_are_expected(expected: int) -> None:
    town = Town(QuorumSettings(expected_replicas=expected, join_limit_s=10.0))
    a, b = town.start("a", "b")
    if expected:
        assert a.told is None
        assert "2 of 3 expected" in a.waiting
        town.wait(11.0)
    assert names(b.told)[-1] == "b"
    assert a.told is not None


def test_one_that_asks_while_it_cannot_be_fenced_is_not_left_behind() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.join(a)
    assert fenced(town.wait(5.5, silent=(b,))) == ["b/0#0"]
    town.join(b)  # its way to the service is back before its agent's
    town.now += 0.1
    town.do(Beaten(b.member, None))
    assert "fencing b/0#0" in b.waiting
    town.do(Unreachable(b.member, "its agent does not answer"))
    assert names(a.told) == names(b.told) == ["a", "b"]


def test_one_that_is_heard_again_while_its_ask_is_outstanding_is_within_reach_again() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.join(b)
    town.wait(8.0, silent=(b,))
    assert town.machine.is_lost(b.member)
    town.do(Beaten(b.member, None))
    town.join(a)
    assert names(a.told) == names(b.told) == ["a", "b"]


def test_a_hang_of_one_that_was_out_of_reach_is_fenced_again() -> None:
    town = Town()
    _, b = town.start("a", "b")
    town.do(HangSuspected(b.member, "stands still"))
    town.do(Unreachable(b.member, "its agent does not answer"))
    assert fenced(town.do(HangSuspected(b.member, "stands still"))) == ["b/0#0"]


def test_one_that_only_starts_may_be_silent_for_longer_but_not_for_ever() -> None:
    town = Town()
    town.start("a", "b")
    c = town.peer("c")
    town.register(c)
    assert fenced(town.wait(25.0, silent=(c,))) == []
    assert fenced(town.wait(6.0, silent=(c,))) == ["c/0#0"]
