"""Who starts again does so under a new incarnation: of the older one nothing is taken."""

from __future__ import annotations

from danaus.quorum.events import DeathReported

from .quorum_cases import Peer, Town, fenced


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


def test_one_that_starts_again_under_its_old_name_is_told_so() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.wait(0.25)
    town.register(b)  # its connection was lost, no more
    again = town.peers[a.member] = Peer(a.seat)
    town.register(again)
    town.join(again, b)
    assert again.refused is not None
    assert "needs a higher incarnation" in again.refused.reason
    assert b.refused is None
    new = town.peer("a", incarnation=1)
    town.register(new)
    town.join(new)
    assert new.refused is None


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
