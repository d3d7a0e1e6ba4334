"""Learners that could trail and are waited for because that is quicker (H-1)."""

from __future__ import annotations

from danaus.quorum.events import Abort, QuorumSettings

from .quorum_cases import Peer, Town, learners, names

QUICK = {"state_bytes": 2_000_000, "step_s": 0.9}  # 0.04 s of a step that gets 0.3 s shorter


def asking(town: Town, **numbers: float) -> tuple[Peer, Peer, Peer]:
    """Bring a and b to step 5 with what they say of themselves, and have c ask."""
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.become(**{"lends": True, **numbers})
        peer.commit(5)
    c = town.peer("c")
    town.register(c)
    town.join(c)
    town.join(a, b)
    return a, b, c


def learned(town: Town, peer: Peer, lesson_s: float = 0.05) -> None:
    """Let a learner hold what the members hold, and ask again."""
    assert peer.told is not None
    step, lineage = peer.told.committed_step, peer.told.lineage_term
    peer.become(
        committed_step=step, fingerprint=f"f{step}", lineage_term=lineage, lesson_s=lesson_s
    )
    town.join(peer)


def trails(town: Town) -> bool:
    """Tell whether the members go on beside all learners of the last announcement."""
    return not town.last.hold and all(each.trail for each in town.last.learners)


def test_the_members_wait_where_a_lesson_is_shorter_than_what_it_saves() -> None:
    town = Town()
    a, b, c = asking(town, **QUICK)
    assert (learners(town.last), town.last.hold) == (["c"], True)
    assert town.last.learners[0].trail is None
    assert "waiting for the 0.04 s that this takes" in town.last.reason
    assert "less than the 0.3 s" in town.last.reason
    town.join(a, b)
    learned(town, c)
    assert (names(a.told), town.last.hold) == (["a", "b", "c"], False)


def test_they_go_on_where_it_is_longer_or_nothing_is_known_or_it_is_not_wanted() -> None:
    for numbers in ({}, {**QUICK, "state_bytes": 50_000_000}, {**QUICK, "step_s": 0.0}):
        town = Town()
        asking(town, **numbers)
        assert trails(town), numbers
    town = Town(QuorumSettings(hold_share=0.0))
    asking(town, **QUICK)
    assert trails(town)
    town = Town(QuorumSettings(hold_share=0.1))
    asking(town, **QUICK)
    assert trails(town)


def test_what_the_last_lesson_took_counts_for_more_than_what_is_assumed() -> None:
    town = Town()
    a, b, c = asking(town, **QUICK)
    town.join(a, b)
    learned(town, c, lesson_s=0.4)
    d = town.peer("d")
    town.register(d)
    town.join(d)
    for peer in (a, b, c):
        peer.become(lends=True, **QUICK)
    town.join(a, b, c)
    assert trails(town)
    assert learners(town.last) == ["d"]


def test_a_service_that_was_restarted_knows_it_from_whoever_learned() -> None:
    for lesson_s, waits in ((0.4, False), (0.01, True)):
        town = Town()
        a, b = town.start("a", "b")
        for peer in (a, b):
            peer.become(lends=True, lesson_s=lesson_s, **QUICK)
            peer.commit(5)
        town.restart()
        c = town.peer("c")
        town.register(a, b, c)
        town.join(c)
        town.join(a, b)
        assert town.last.hold is waits


def test_who_is_not_there_after_a_step_trails_and_has_not_failed() -> None:
    town = Town()
    a, b, c = asking(town, **QUICK)
    town.join(a, b)
    town.wait(0.75)
    assert a.asking, "a step takes 0.9 s"
    town.wait(0.5)
    assert (names(a.told), learners(town.last), town.last.hold) == (["a", "b"], [], False)
    assert any("wait no longer" in said.message.reason for said in town.all(Abort))
    c.become(fingerprint="")
    town.join(c)
    assert a.pending == "c#0 is ready to join"
    for peer in (a, b):
        peer.commit(6)
    town.join(a, b)
    assert trails(town)
    assert learners(town.last) == ["c"]


def test_one_that_could_not_be_served_while_they_waited_trails() -> None:
    town = Town()
    a, b, c = asking(town, **QUICK)
    town.join(a, b)
    c.become(fingerprint="")
    town.join(c)
    assert trails(town)
    assert names(town.last) == ["a", "b"]
    assert learners(town.last) == ["c"]


def test_a_wrong_state_is_counted_however_it_was_learned() -> None:
    town = Town()
    a, b, c = asking(town, **QUICK)
    for _ in range(2):
        town.join(a, b)
        c.become(committed_step=5, fingerprint="wrong", lineage_term=town.last.lineage_term)
        town.join(c)
    assert c.refused is not None
    assert "wrong state" in c.refused.reason


def test_its_death_lets_the_members_go_on_at_once() -> None:
    town = Town()
    a, b, c = asking(town, **QUICK)
    town.join(a, b)
    town.die(c)
    assert (names(a.told), learners(town.last), town.last.hold) == (["a", "b"], [], False)


def test_one_that_must_be_waited_for_is_given_its_full_time() -> None:
    """A learner that has failed before is waited for by the limit; the other one has that, too."""
    town = Town(QuorumSettings(hold_limit_s=4.0))
    a, b, c = asking(town, lends=False)
    town.join(a, b)
    town.wait(4.5)
    assert c.aborted
    for peer in (a, b):
        peer.become(lends=True, **QUICK)
        peer.commit(6)
    d = town.peer("d")
    town.register(d)
    town.join(c, d)
    town.join(a, b)
    assert (learners(town.last), town.last.hold) == (["c", "d"], True)
    town.join(a, b)
    town.wait(3.0)
    assert a.asking
