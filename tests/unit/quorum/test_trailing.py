"""Learners that catch up while the members go on (H-1)."""

from __future__ import annotations

from danaus.quorum.events import Abort, Announce, QuorumSettings
from danaus.quorum.messages import Epoch, Trail

from .quorum_cases import Peer, Town, learners, names


def trailing(town: Town, step: int = 5) -> tuple[Peer, Peer, Peer]:
    """Bring a and b to a step, and c in as a learner that nobody waits for."""
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.become(lends=True)
        peer.commit(step)
    c = town.peer("c")
    town.register(c)
    town.join(c)
    town.join(a, b)
    return a, b, c


def donors(town: Town) -> list[str]:
    """Return the donors of the only learner of the last announcement."""
    (learner,) = town.last.learners
    return [donor.member.replica_id for donor in learner.donors]


def caught_up(peer: Peer, step: int) -> None:
    """Let a learner have come to a step."""
    assert peer.told is not None
    lineage = peer.told.lineage_term
    peer.become(committed_step=step, fingerprint=f"f{step}", caught_up=True, lineage_term=lineage)


def test_members_that_can_lend_go_on_while_a_newcomer_learns() -> None:
    town = Town()
    a, _, c = trailing(town)
    assert (names(a.told), town.last.hold) == (["a", "b"], False)
    assert town.last.learners[0].trail == Trail(Epoch(1, 2), 5)
    assert c.told == town.last
    assert "c learns step 5 while the others go on" in town.last.reason
    town.wait(30.0)
    assert (a.pending, a.aborted, c.aborted) == ("", "", "")


def test_members_that_cannot_lend_wait_and_one_that_can_is_enough() -> None:
    town = Town()
    a, b = town.start("a", "b")
    a.become(lends=True)
    a.commit(5)
    b.commit(5)
    c, d = town.peer("c"), town.peer("d")
    town.register(c, d)
    town.join(c)
    town.join(a, b)
    assert (donors(town), town.last.hold) == (["a"], False)
    a.become(lends=False)
    town.join(d)
    town.join(a, b)
    of_c, of_d = town.last.learners[1], town.last.learners[0]
    assert of_c.trail == Trail(Epoch(1, 2), 5)
    assert (of_d.trail, len(of_d.donors), town.last.hold) == (None, 2, True)


def test_nobody_goes_on_before_the_first_step_or_with_too_few() -> None:
    town = Town()
    a, _, _ = trailing(town, step=0)
    assert (names(a.told), learners(town.last), town.last.hold) == (["a", "b"], ["c"], True)
    town = Town(QuorumSettings(min_replicas=2))
    a, b = town.start("a", "b")
    a.become(lends=True)
    a.commit(5)
    town.die(b)
    new = town.peer("b", incarnation=1)
    town.register(new)
    town.join(a, new)
    assert (learners(town.last), town.last.hold) == (["b"], True)


def test_one_that_has_caught_up_is_waited_for_and_enters() -> None:
    town = Town()
    a, b, c = trailing(town)
    caught_up(c, 8)
    town.join(c)
    assert a.pending == "c#0 is ready to join"
    a.commit(9)
    b.commit(9)
    town.join(a, b)
    (learner,) = town.last.learners
    assert (learner.trail, town.last.hold, town.last.committed_step) == (None, True, 9)
    town.join(a, b)
    assert a.asking
    caught_up(c, 9)
    town.join(c)
    assert (names(a.told), town.last.hold, learners(town.last)) == (["a", "b", "c"], False, [])


def test_one_that_stands_where_the_members_stand_enters_at_once() -> None:
    town = Town()
    a, b, c = trailing(town)
    caught_up(c, 9)
    town.join(c)
    a.commit(9)
    b.commit(9)
    town.join(a, b)
    assert (names(c.told), town.last.hold) == (["a", "b", "c"], False)


def test_one_that_failed_on_the_way_is_waited_for_with_the_whole_state() -> None:
    town = Town()
    a, b, c = trailing(town)
    c.become(committed_step=0, fingerprint="")
    town.join(c)
    town.join(a, b)
    assert (learners(town.last), town.last.hold) == (["c"], True)
    assert town.last.learners[0].trail is None


def test_one_that_learned_a_wrong_state_on_the_way_is_counted() -> None:
    town = Town()
    a, b, c = trailing(town)
    caught_up(c, 5)
    c.become(fingerprint="wrong")
    town.join(c, a, b)
    assert town.last.hold
    town.join(a, b, c)
    assert c.refused is not None
    assert "wrong state" in c.refused.reason


def test_it_trails_on_when_a_member_dies_and_hears_nothing_of_it() -> None:
    town = Town()
    a, b, c = trailing(town)
    first = c.told
    town.die(b)
    town.join(a)
    assert (names(a.told), donors(town), town.last.hold) == (["a"], ["a"], False)
    assert town.last.learners[0].trail == Trail(Epoch(1, 2), 5)
    assert town.all(Announce)[-1].to == (a.member,)
    town.wait(10.0)
    assert (c.told, c.aborted) == (first, "")
    caught_up(c, 7)
    town.join(c)
    a.commit(8)
    town.join(a)
    assert (learners(town.last), town.last.hold) == (["c"], True)


def test_it_trails_on_when_another_comes() -> None:
    town = Town()
    a, b, c = trailing(town)
    d = town.peer("d")
    town.register(d)
    town.join(d)
    a.commit(6)
    b.commit(6)
    town.join(a, b)
    assert [one.trail for one in town.last.learners] == [
        Trail(Epoch(1, 3), 6),
        Trail(Epoch(1, 2), 5),
    ]
    caught_up(d, 6)
    town.join(d)
    a.commit(7)
    b.commit(7)
    town.join(a, b)
    assert town.last.hold, "for d, and c trails on"
    assert [one.trail for one in town.last.learners] == [None, Trail(Epoch(1, 2), 5)]
    caught_up(d, 7)
    town.join(a, b, d)
    assert (names(a.told), learners(town.last), town.last.hold) == (["a", "b", "d"], ["c"], False)
    assert donors(town) == ["a", "b"], "d lends nothing from before it was there"
    assert c.aborted == ""


def test_one_whose_donors_are_all_gone_is_told_to_ask_again() -> None:
    town = Town()
    a, b, c = trailing(town)
    d = town.peer("d")
    town.register(d)
    town.join(d)
    town.join(a, b)
    caught_up(d, 5)
    town.join(d)
    town.join(a, b)
    assert names(d.told) == ["a", "b", "d"]
    town.die(a, b)
    town.join(d)
    assert learners(town.last) == []
    town.wait(0.5)
    assert "stands without it" in c.aborted


def test_its_death_is_nothing_to_the_members() -> None:
    town = Town()
    a, b, c = trailing(town)
    town.die(c)
    town.wait(1.0)
    assert (a.pending, a.aborted) == ("", "")
    town.die(b)
    town.join(a)
    assert learners(town.last) == []


def test_a_restore_ends_its_trail() -> None:
    town = Town()
    a, b, c = trailing(town)
    town.die(a, b)
    new = [town.peer(name, incarnation=1) for name in "ab"]
    town.register(*new)
    town.join(*new)
    assert (town.last.start, learners(town.last)) == ("restore", [])
    town.wait(0.5)
    assert c.aborted


def test_those_who_are_done_wait_for_it_for_a_while() -> None:
    for comes in (True, False):
        town = Town()
        a, b, c = trailing(town)
        for peer in (a, b):
            peer.commit(20)
            peer.become(done=True)
        town.join(a, b)
        assert "c learns; waiting for it with the last step taken" in a.waiting
        town.wait(9.0)
        assert a.asking
        if not comes:
            town.wait(1.5)
            assert (names(a.told), town.last.finished) == (["a", "b"], True)
            continue
        caught_up(c, 19)
        town.join(c)
        assert (town.last.finished, town.last.hold, learners(town.last)) == (False, True, ["c"])
        caught_up(c, 20)
        c.become(done=True)
        town.join(a, b, c)
        assert (names(c.told), town.last.finished) == (["a", "b", "c"], True)


def test_a_service_that_was_restarted_knows_who_trails() -> None:
    town = Town()
    a, b, c = trailing(town)
    town.restart()
    town.register(a, b, c)
    town.wait(1.0)
    assert not town.all(Abort)
    town.die(b)
    town.join(a)
    assert donors(town) == ["a"]


def test_nobody_waits_for_it_to_ask_when_a_member_hangs() -> None:
    town = Town(QuorumSettings(join_limit_s=15.0))
    members = town.start("a", "b", "d")
    for peer in members:
        peer.become(lends=True)
        peer.commit(5)
    c = town.peer("c")
    town.register(c)
    town.join(c)
    town.join(*members)
    a, b, _ = members
    town.join(a, b)  # and d beats, but does not ask
    town.wait(16.0)
    assert (names(a.told), learners(town.last)) == (["a", "b"], ["c"])


def test_ranks_catch_up_each_by_itself_and_are_answered_together() -> None:
    town = Town()
    members = [town.peer(name, rank, num_ranks=2) for name in "ab" for rank in (0, 1)]
    town.register(*members)
    town.join(*members)
    for peer in members:
        peer.become(lends=True)
        peer.commit(3)
    new = [town.peer("c", rank, num_ranks=2) for rank in (0, 1)]
    town.register(*new)
    town.join(*new, *members)
    assert [one.trail for one in town.last.learners] == 2 * [Trail(Epoch(1, 2), 3)]
    caught_up(new[0], 5)
    town.join(new[0])
    assert members[0].pending == ""
    town.die(*[peer for peer in members if peer.member.replica_id == "b"])
    rest = [peer for peer in members if peer.member.replica_id == "a"]
    town.join(*rest)
    assert (learners(town.last), new[0].asking) == (["c"], True), "its ask stays open"
    caught_up(new[1], 6)
    town.join(new[1])
    town.join(*rest)
    assert (learners(town.last), town.last.hold) == (["c"], True)
    assert not new[0].asking
