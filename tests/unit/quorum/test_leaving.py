"""Drain: who leaves takes its step to the end, counts until others go on, and is let go then."""

from __future__ import annotations

from danaus.quorum.events import (
    Announce,
    DeathReported,
    DiskFailed,
    JoinAsked,
    LeaveAsked,
    QuorumSettings,
    Release,
)
from danaus.quorum.messages import Join

from .quorum_cases import Peer, Town, fenced, learners, learning, names


def leave(town: Town, *peers: Peer, reason: str = "drain") -> None:
    for peer in peers:
        town.do(LeaveAsked(peer.member, reason))


def test_who_leaves_is_released_after_the_step_and_the_others_go_on_at_once() -> None:
    town = Town()
    a, b = town.start("a", "b")
    leave(town, b, reason="drain of its host")
    assert a.pending == b.pending == "b leaves: drain of its host"
    assert a.aborted == b.aborted == "", "the step in hand is finished"
    before = town.now
    town.join(b)
    assert b.asking, "until the others have gone on it is still needed"
    town.join(a)
    assert names(a.told) == ["a"]
    assert b.released is not None
    assert not b.released.save
    assert "drain of its host" in b.released.reason
    assert town.now == before, "nobody is waited for"


def test_who_leaves_is_waited_for_like_everybody_until_it_has_asked() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    leave(town, c)
    town.join(a, b)
    assert a.asking, "c may still vote"
    town.join(c)
    assert names(a.told) == ["a", "b"]


def test_who_leaves_and_dies_before_its_step_ends_is_dead_like_any_other() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    leave(town, c)
    town.do(DeathReported(c.member, "ended by SIGKILL"))
    assert "c lost rank 0: ended by SIGKILL" in a.aborted
    town.join(a, b)
    assert names(a.told) == ["a", "b"]
    assert not town.all(Release)


def test_several_leave_after_one_step() -> None:
    town = Town()
    a, b, c, d = town.start("a", "b", "c", "d")
    leave(town, b, c, d)
    town.join(a, d, b)
    assert b.released is None, "the next quorum is not formed"
    town.join(c)
    assert names(a.told) == ["a"]
    assert b.released
    assert c.released
    assert d.released


def test_who_leaves_goes_on_if_all_who_stay_die_first() -> None:
    town = Town()
    a, b = town.start("a", "b")
    a.commit(4)
    b.commit(4)
    leave(town, b)
    town.join(b)
    town.do(DeathReported(a.member, "ended by SIGKILL"))
    assert b.released is not None
    assert b.released.save, "it is the last that holds the state"


def test_the_last_is_told_to_write_the_state_down() -> None:
    town = Town()
    a, b = town.start("a", "b")
    a.commit(3)
    b.commit(3)
    leave(town, a, b)
    assert a.pending == "a leaves: drain"
    town.join(a)
    assert a.asking
    town.join(b)
    assert [(r.members, r.message.save) for r in town.all(Release)] == [
        ((a.member,), True),
        ((b.member,), False),
    ]


def test_the_last_waits_for_whoever_is_there_to_learn_the_state() -> None:
    town = Town()
    (a,) = town.start("a")
    a.commit(3)
    leave(town, a)
    b = town.peer("b")
    town.register(b)
    town.join(b)
    town.join(a)
    assert learners(town.last) == ["b"]
    town.join(a)
    b.commit(3)
    town.join(b)
    assert names(a.told) == ["a", "b"]
    town.join(a, b)
    assert a.released is not None
    assert not a.released.save
    assert names(b.told) == ["b"]


def test_the_last_with_a_step_open_settles_it_first() -> None:
    town = Town()
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.commit(3)
        peer.begin(4, "prepared", "digest")
    leave(town, a)
    town.do(DeathReported(b.member, "ended by SIGKILL"))
    town.join(a)
    assert names(a.told) == ["a"]
    assert a.report.committed_step == 4
    assert a.pending == "a leaves: drain"
    town.join(a)
    assert a.released is not None
    assert a.released.save


def test_all_ranks_of_the_last_are_let_go_together() -> None:
    town = Town()
    ranks = [town.peer("a", rank, num_ranks=2) for rank in (0, 1)]
    town.register(*ranks)
    town.join(*ranks)
    leave(town, ranks[1])
    assert ranks[0].pending
    town.join(ranks[0])
    assert ranks[0].asking
    town.join(ranks[1])
    (release,) = town.all(Release)
    assert release.members == (ranks[0].member, ranks[1].member)
    assert release.message.save
    out = town.do(DeathReported(ranks[0].member, "ended with exit code 0", clean=True))
    assert not fenced(out), "the other may still be writing"
    out = town.do(DeathReported(ranks[1].member, "ended with exit code 0", clean=True))
    fresh = town.peer("a", 0, 1, 2), town.peer("a", 1, 1, 2)
    for peer in fresh:
        peer.become(restorable_step=3)
    town.register(*fresh)
    town.join(*fresh)
    assert town.last.start == "restore"


def test_siblings_of_a_rank_that_was_killed_while_it_left_are_fenced() -> None:
    town = Town()
    ranks = [town.peer("a", rank, num_ranks=2) for rank in (0, 1)]
    b = town.peer("b")
    town.register(*ranks, b)
    town.join(*ranks, b)
    leave(town, ranks[0])
    out = town.do(DeathReported(ranks[0].member, "ended by SIGKILL"))
    assert fenced(out) == ["a/1#0"]


def test_a_run_that_is_done_ends_as_ever_though_somebody_leaves() -> None:
    town = Town()
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.commit(9)
        peer.become(done=True)
    leave(town, a, b)
    town.join(a, b)
    assert town.last.finished
    assert not town.all(Release)


def test_too_few_are_left_to_go_on_and_who_leaves_is_let_go_all_the_same() -> None:
    town = Town(QuorumSettings(min_replicas=2))
    a, b = town.start("a", "b")
    leave(town, b)
    town.join(b)
    assert b.asking
    town.join(a)
    assert b.released is not None
    assert a.asking
    assert a.waiting.startswith("1 of 2 needed")
    c = town.peer("c")
    town.register(c)
    town.join(c)
    assert learners(a.told) == []
    assert names(a.told) == ["a", "c"], "it stands at the same step"


def test_a_learner_that_leaves_stops_learning_and_nobody_waits_for_it() -> None:
    town = Town()
    a, b, c = learning(town)
    leave(town, c)
    assert c.aborted == "c leaves: drain"
    assert not b.aborted
    town.join(c)
    assert c.released is not None
    town.join(a, b)
    assert names(town.last) == ["a", "b"]


def test_a_donor_that_leaves_lets_the_learner_end_first() -> None:
    town = Town()
    a, b, c = learning(town)
    town.join(a, b)
    leave(town, b)
    assert b.asking, "it serves"
    c.commit(5)
    town.join(c)
    assert names(town.last) == ["a", "c"]
    assert b.released is not None


def test_one_that_only_starts_is_let_go_as_soon_as_it_asks() -> None:
    town = Town()
    a, b = town.start("a", "b")
    c = town.peer("c")
    town.register(c)
    leave(town, c)
    town.join(c)
    assert c.released is not None
    assert a.pending == b.pending == ""


def test_a_new_service_is_told_again_and_lets_go_whom_it_counts_on_no_more() -> None:
    town = Town()
    a, b = town.start("a", "b")
    leave(town, b)
    town.restart()
    town.register(a, b)
    leave(town, b)
    assert a.pending == "b leaves: drain"
    town.join(a, b)
    b.released = None
    town.register(b)
    leave(town, b)
    town.join(b)
    assert b.released is not None


def test_who_leaves_is_not_let_go_while_the_quorum_without_it_cannot_be_saved() -> None:
    town = Town()
    a, b = town.start("a", "b")
    leave(town, b)
    town.join(b)
    before = len(town.all(Announce))
    a.number += 1
    out = town.machine.handle(JoinAsked(Join(a.seat, a.report, a.number)), town.now)
    assert any(isinstance(each, Announce) for each in out)
    town.do(DiskFailed("no space left on device"))  # and nothing behind it was carried out
    assert b.asking
    assert len(town.all(Announce)) == before
    town.wait(1.5)
    assert names(a.told) == ["a"]
    assert b.released is not None
