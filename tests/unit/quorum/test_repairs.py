"""H-3: one rank of a replica is lost, its siblings give their names up and come back with the next.

In these tests a and b are replicas of two ranks; rank 1 of b dies.
"""

from __future__ import annotations

import msgspec
import pytest

from danaus.quorum.events import (
    Abort,
    DeathReported,
    Fence,
    HangSuspected,
    Pardon,
    QuorumSettings,
    Registered,
    Renounced,
)
from danaus.quorum.messages import Epoch, Seat

from .quorum_cases import Peer, Town, fenced, learners, names

LIMIT_S = QuorumSettings().renounce_limit_s
STEP = 4


def sit(town: Town, name: str, rank: int, incarnation: int = 0, **more: object) -> Peer:
    """Return one rank of a replica of two that can be repaired."""
    peer = town.peer(name, rank, incarnation, num_ranks=2)
    peer.seat = msgspec.structs.replace(peer.seat, rejoins=True, **more)
    return peer


def begin(town: Town) -> tuple[list[Peer], Peer, Peer]:
    """Bring both replicas to a step; return a's ranks, and b's two."""
    ranks = [sit(town, name, rank) for name in "ab" for rank in (0, 1)]
    town.register(*ranks)
    town.join(*ranks)
    for peer in ranks:
        peer.commit(STEP)
    return ranks[:2], ranks[2], ranks[3]


def back(town: Town, old: Peer, incarnation: int = 1) -> Peer:
    """Return a process under its next name, with what it had committed under the last."""
    formerly = (*old.seat.formerly, old.member)
    new = sit(town, "b", old.member.rank, incarnation, formerly=formerly)
    new.report = msgspec.structs.replace(old.report, open_step=None)
    return new


def started(town: Town, rank: int = 1, incarnation: int = 1) -> Peer:
    """Return a process that was started in the place of the lost one."""
    return sit(town, "b", rank, incarnation)


@pytest.fixture
def town() -> Town:
    return Town()


def test_the_others_go_on_at_once_and_the_sibling_is_not_fenced(town: Town) -> None:
    a, b0, b1 = begin(town)
    town.die(b1)
    town.join(*a)
    assert names(town.last) == ["a"]
    assert town.last.repairs == ("b",)
    assert not town.all(Fence)
    assert b0.aborted == "b lost rank 1: ended by SIGKILL", "it leaves what it is blocked in"


def test_a_sibling_that_cannot_go_on_under_another_name_is_fenced(town: Town) -> None:
    a, b0, b1 = begin(town)
    town.do(Registered(msgspec.structs.replace(b0.seat, rejoins=False)))
    out = town.do(DeathReported(b1.member, "ended by SIGKILL"))
    assert fenced(out) == ["b/0#0"]
    town.join(*a)
    assert town.last.repairs == ()


def test_a_sibling_that_keeps_its_name_too_long_is_fenced_and_not_expected_back(
    town: Town,
) -> None:
    a, b0, b1 = begin(town)
    town.die(b1)
    assert not fenced(town.wait(LIMIT_S - 0.5))
    assert fenced(town.wait(1.0)) == ["b/0#0"]
    town.die(b0)
    town.join(*a)
    assert town.last.repairs == ()


def test_a_sibling_that_hangs_is_fenced_like_any_other(town: Town) -> None:
    _, b0, b1 = begin(town)
    town.die(b1)
    assert fenced(town.do(HangSuspected(b0.member, "no progress"))) == ["b/0#0"]


@pytest.mark.parametrize("says", ["renounces", "registers", "asks"])
def test_a_name_that_was_given_up_is_dead_however_the_service_hears_of_it(
    town: Town, says: str
) -> None:
    a, b0, b1 = begin(town)
    town.die(b1)
    new = back(town, b0)
    if says == "renounces":
        town.do(Renounced(b0.member, "b lost rank 1"))
    elif says == "registers":
        town.register(new)
    else:
        town.join(new)
    assert town.machine.is_renounced(b0.member)
    assert town.machine.is_lost(b0.member)
    assert not fenced(town.wait(2 * LIMIT_S, silent=(b0,)))
    assert not town.machine.is_lost(new.member)
    town.join(*a)
    assert names(town.last) == ["a"]


def test_a_name_may_be_given_up_before_the_death_is_known(town: Town) -> None:
    a, b0, b1 = begin(town)
    town.do(Renounced(b0.member, "it has lost a sibling"))
    town.join(*a)
    assert (names(town.last), town.last.repairs) == (["a"], ("b",))
    assert a[0].told is not None
    out = town.do(DeathReported(b1.member, "ended by SIGKILL"))
    assert not fenced(out)


def test_what_was_on_its_way_under_a_name_that_was_given_up_counts_for_nothing(
    town: Town,
) -> None:
    _, b0, b1 = begin(town)
    b0.begin(STEP + 1, "prepared", "d")
    town.die(b1)
    town.do(Renounced(b0.member, "b lost rank 1"))
    town.join(b0)
    town.register(b0)
    assert town.machine.is_lost(b0.member)
    assert b0.refused is None, "its process is not to end"


def test_a_new_name_that_comes_before_the_death_does_not_cost_the_sibling_its_life(
    town: Town,
) -> None:
    _, b0, b1 = begin(town)
    town.register(back(town, b0))
    town.die(b1)
    town.register(started(town))
    assert not fenced(town.wait(2 * LIMIT_S, silent=(b0,)))


def test_the_new_process_may_come_before_its_sibling_has_given_its_name_up(town: Town) -> None:
    _, b0, b1 = begin(town)
    town.die(b1)
    town.register(started(town))
    assert not fenced(town.wait(LIMIT_S - 0.5))
    town.do(Renounced(b0.member, "b lost rank 1"))
    assert not fenced(town.wait(2 * LIMIT_S, silent=(b0,)))


def test_a_replica_that_was_replaced_while_all_of_it_lives_is_fenced_at_once(town: Town) -> None:
    begin(town)
    out = town.do(Registered(started(town).seat))
    assert fenced(out) == ["b/0#0", "b/1#0"], "nobody unfenced is left behind (Q-7)"


def test_a_fence_that_was_ordered_is_called_off_and_never_ordered_again(town: Town) -> None:
    _, b0, b1 = begin(town)
    town.die(b1)
    town.wait(LIMIT_S + 0.5)
    out = town.do(Renounced(b0.member, "b lost rank 1"))
    assert [said.seat.member for said in out if isinstance(said, Pardon)] == [b0.member]
    new = back(town, b0)
    town.register(new)
    assert not [said for said in town.do(Registered(new.seat)) if isinstance(said, Pardon)]
    assert not fenced(town.wait(3.0, silent=(b0,)))


def test_the_repaired_replica_learns_together_and_is_not_expected_any_more(town: Town) -> None:
    a, b0, b1 = begin(town)
    for peer in a:
        peer.become(lends=True)
    town.die(b1)
    town.join(*a)
    for peer in a:
        peer.commit(STEP + 3)
    new = [back(town, b0), started(town)]
    town.register(*new)
    town.join(*new)
    town.join(*a)
    assert (names(town.last), learners(town.last)) == (["a"], ["b"])
    assert town.last.repairs == ()
    assert all(learner.trail is not None for learner in town.last.learners)


def test_a_sibling_that_was_prepared_does_not_count_as_prepared(town: Town) -> None:
    a, b0, b1 = begin(town)
    for peer in (*a, b0, b1):
        peer.begin(STEP + 1, "prepared", f"d{peer.member.rank}")
    a[1].begin(STEP + 1)
    town.die(b1)
    new = back(town, b0)
    town.join(new, *a)
    assert (town.last.outcome.verdict, town.last.outcome.step) == ("discard", STEP + 1)


def test_a_sibling_that_had_committed_tells_so_of_the_open_step(town: Town) -> None:
    a, b0, b1 = begin(town)
    for peer in a:
        peer.begin(STEP + 1, "prepared", f"d{peer.member.rank}")
        assert peer.report.open_step is not None
        peer.become(open_step=msgspec.structs.replace(peer.report.open_step, refused_seen=False))
    b0.commit(STEP + 1)
    town.die(b1)
    town.register(back(town, b0))
    town.join(back(town, b0), *a)
    outcome = town.last.outcome
    assert (outcome.verdict, outcome.step) == ("commit", STEP + 1)
    assert "b/0#1 has learned" in outcome.reason


def test_after_the_service_was_started_again_the_name_is_dead_all_the_same(town: Town) -> None:
    a, b0, b1 = begin(town)
    town.restart()
    new = back(town, b0)
    town.register(*a, new)
    town.die(b1)
    assert town.machine.is_renounced(b0.member)
    town.join(*a)
    assert names(town.last) == ["a"], "nobody is waited for"


@pytest.mark.parametrize("first", ["the sibling", "a member"])
def test_a_service_without_its_disk_takes_the_name_for_dead_whoever_comes_first(
    town: Town, first: str
) -> None:
    a, b0, b1 = begin(town)
    town.restart(saved=None, ledger_steps=STEP, lost=True)
    new = back(town, b0)
    order = [new, *a] if first == "the sibling" else [*a, new]
    town.register(*order)
    town.die(b1)
    town.now += 6.0
    town.join(*a)
    assert names(town.last) == ["a"]
    assert town.last.epoch > Epoch(1, 1)


def test_when_every_replica_has_lost_a_rank_the_run_waits_for_names_not_for_deaths(
    town: Town,
) -> None:
    (a0, a1), b0, b1 = begin(town)
    town.die(a1, b1)
    town.do(Renounced(a0.member, "a lost rank 1"))
    town.do(Renounced(b0.member, "b lost rank 1"))
    new = [
        sit(town, "a", 0, 1, formerly=(a0.member,)),
        back(town, b0),
        sit(town, "a", 1, 1),
        started(town),
    ]
    town.register(*new)
    town.join(*new)
    assert (town.last.start, names(town.last)) == ("restore", ["a", "b"]), "nobody has all of it"


def test_the_abort_that_a_sibling_is_told_is_of_the_quorum_it_is_in(town: Town) -> None:
    _, b0, b1 = begin(town)
    out = town.do(DeathReported(b1.member, "ended by SIGKILL"))
    told = [said for said in out if isinstance(said, Abort) and said.members == (b0.member,)]
    assert [said.message.epoch for said in told] == [town.last.epoch]


def test_a_process_that_is_suspected_under_its_new_name_is_fenced_under_it(town: Town) -> None:
    _, b0, b1 = begin(town)
    town.die(b1)
    new = back(town, b0)
    town.register(new)
    assert fenced(town.do(HangSuspected(new.member, "no progress"))) == ["b/0#1"]
    assert isinstance(new.seat, Seat)
