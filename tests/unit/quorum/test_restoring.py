"""Divergence, restoring, resuming, the disk, and the end of a run."""

from __future__ import annotations

from danaus.quorum.events import (
    Announce,
    DeathReported,
    DiskFailed,
    Fence,
    JoinAsked,
    NoteDivergence,
    Persist,
    ProbeProcess,
    QuorumSettings,
    Refuse,
    TimePassed,
)
from danaus.quorum.messages import Epoch, Join
from danaus.quorum.state import QuorumMachine

from .quorum_cases import Peer, Town, learners, learning, names, record, seat

# -- divergence -----------------------------------------------------------------------------------


def test_a_minority_heals_from_the_majority() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    for peer in (a, b, c):
        peer.commit(4)
    c.become(fingerprint="flipped")
    town.join(a, b, c)
    assert (names(town.last), learners(town.last), town.last.hold) == (["a", "b"], ["c"], True)
    assert "c has flipped" in town.last.reason
    (note,) = town.all(NoteDivergence)
    assert (note.step, note.minority) == (4, ("c",))


def test_without_a_majority_all_return_to_a_checkpoint_and_the_second_time_is_the_last() -> None:
    town = Town()
    a, b = town.start("a", "b")
    for peer, checkpoint in ((a, 2), (b, 3)):
        peer.commit(4)
        peer.become(restorable_step=checkpoint)
    b.become(fingerprint="flipped")
    town.join(a, b)
    told = town.last
    assert (told.start, told.committed_step, told.epoch) == ("restore", 2, Epoch(2, 1))
    assert told.lineage_term == 2
    a.commit(4)
    b.commit(4)
    b.become(fingerprint="flipped")
    town.restart()  # what diverged is on the disk
    town.register(a, b)
    town.join(a, b)
    assert a.refused is not None
    assert a.refused.diverged == {"a": "f4", "b": "flipped"}
    assert (a.refused.step, b.refused) == (4, a.refused)
    town.join(a)
    assert a.refused is not None


def test_divergence_stops_the_run_where_healing_is_off() -> None:
    town = Town(QuorumSettings(heal_divergence=False))
    a, b, c = town.start("a", "b", "c")
    for peer in (a, b, c):
        peer.commit(4)
    c.become(fingerprint="flipped")
    town.join(a, b, c)
    assert a.refused is not None
    assert a.refused.diverged["c"] == "flipped"


def test_a_state_that_was_rolled_back_is_behind_even_at_the_same_step() -> None:
    town = Town(QuorumSettings(join_limit_s=0.5))
    a, b, c = town.start("a", "b", "c")
    for peer in (a, b, c):
        peer.commit(8)
    a.become(fingerprint="x", restorable_step=8)
    b.become(restorable_step=8)
    town.join(a, b)
    town.wait(1.0)
    assert (town.last.start, names(town.last)) == ("restore", ["a", "b"])
    a.become(fingerprint="restored")
    b.become(fingerprint="restored")
    town.join(c)
    town.join(a, b)
    assert learners(town.last) == ["c"]


# -- all dead, restoring, resuming ----------------------------------------------------------------


def test_once_all_are_confirmed_dead_the_run_goes_on_from_its_checkpoint_in_a_new_term() -> None:
    town = Town(QuorumSettings(expected_replicas=2))
    a, b = town.start("a", "b")
    a.commit(9)
    b.commit(9)
    town.die(a, b)
    new = [town.peer(name, incarnation=1) for name in "ab"]
    for peer in new:
        peer.become(restorable_step=6)
    town.register(*new)
    town.join(new[0])
    assert new[0].asking
    town.join(new[1])
    told = town.last
    assert (told.start, told.committed_step, told.epoch) == ("restore", 6, Epoch(2, 1))
    assert "all of the last quorum are dead" in told.reason
    assert told.lineage_term == 2


def test_a_learner_that_had_learned_all_keeps_the_run_alive() -> None:
    town = Town()
    a, b, c = learning(town)
    c.become(committed_step=5, fingerprint="f5")
    town.die(a, b)
    town.join(c)
    told = town.last
    assert (told.start, told.committed_step, names(told)) == ("live", 5, ["c"])


def test_one_that_could_not_restore_learns_from_one_that_could() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.die(a, b)
    new = [town.peer(name, incarnation=1) for name in "ab"]
    for peer in new:
        peer.become(restorable_step=3)
    town.register(*new)
    town.join(*new)
    assert town.last.start == "restore"
    new[1].become(committed_step=0, fingerprint="", restorable_step=2)
    town.join(*new)
    assert (names(town.last), learners(town.last)) == (["a"], ["b"])


def test_where_no_one_could_restore_an_older_checkpoint_is_tried() -> None:
    town = Town()
    (a,) = town.start("a")
    town.die(a)
    new = town.peer("a", incarnation=1)
    new.become(restorable_step=3)
    town.register(new)
    town.join(new)
    assert town.last.committed_step == 3
    new.become(committed_step=0, fingerprint="", restorable_step=1)
    town.join(new)
    assert (town.last.start, town.last.committed_step) == ("restore", 1)
    assert town.last.epoch == Epoch(3, 1)


def test_resuming_begins_a_new_term_from_the_checkpoint() -> None:
    town = Town()
    (a,) = town.start("a")
    a.commit(9)
    town.peers.clear()
    town.restart(resume=True)
    new = town.peer("a", incarnation=1)
    new.become(restorable_step=7)
    town.register(new)
    town.join(new)
    told = town.last
    assert (told.start, told.committed_step, told.epoch) == ("restore", 7, Epoch(2, 1))


def test_a_ledger_names_a_term_that_a_lost_disk_may_not_use_again() -> None:
    town = Town(ledger_steps=9, ledger_term=4, resume=True)
    (a,) = town.start("a")
    assert town.last.epoch == Epoch(5, 1)
    assert (town.last.start, town.last.committed_step) == ("restore", 0)
    assert a.told is not None


def test_the_first_quorum_starts_live_from_the_seed_and_heals_unequal_weights() -> None:
    town = Town(QuorumSettings(expected_replicas=3))
    for name, fingerprint in (("a", "x"), ("b", "y"), ("c", "y")):
        town.peer(name).become(fingerprint=fingerprint)
    town.start("a", "b", "c")
    told = town.last
    assert (told.start, told.committed_step, told.epoch) == ("live", 0, Epoch(1, 1))
    assert (names(told), learners(told)) == (["a"], ["b", "c"])


def test_a_bit_that_flips_before_the_first_step_is_healed_from_the_majority() -> None:
    town = Town(QuorumSettings(expected_replicas=3))
    a, b, c = town.start("a", "b", "c")
    assert names(town.last) == ["a", "b", "c"]
    a.become(fingerprint="flipped")
    town.join(a, b, c)
    assert (names(town.last), learners(town.last)) == (["b", "c"], ["a"])


# -- the disk -----------------------------------------------------------------------------------


def test_what_cannot_be_saved_is_not_announced_and_is_tried_again_in_a_later_epoch() -> None:
    machine = QuorumMachine(QuorumSettings())
    town = Town()
    a = town.peer("a")
    out = machine.handle(JoinAsked(Join(a.seat, a.report, 1)), 0.0)
    kinds = [type(o) for o in out]
    assert kinds.index(Persist) < kinds.index(Announce)
    out = machine.handle(DiskFailed("no space left"), 0.0)
    assert Announce not in [type(o) for o in out]
    assert machine.epoch is None
    out = machine.handle(TimePassed(), 0.5)
    assert Announce not in [type(o) for o in out]
    out = machine.handle(TimePassed(), 1.5)
    (told,) = [o.announcement for o in out if isinstance(o, Announce)]
    assert told.epoch == Epoch(1, 2)
    # A failure that is reported late undoes nothing.
    machine.handle(TimePassed(), 1.6)
    machine.handle(DiskFailed("no space left"), 1.7)
    assert machine.epoch == told.epoch


def test_after_a_restart_members_are_looked_for_and_the_saved_quorum_stands() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.restart()
    out = town.do(TimePassed())
    assert [o.seat for o in out if isinstance(o, ProbeProcess)] == [a.seat, b.seat]
    town.do(DeathReported(b.member, "is not running"))
    town.join(a)
    assert names(a.told) == ["a"]
    assert town.last.epoch == Epoch(1, 2)


def test_a_quorum_that_was_saved_and_reached_nobody_is_announced_after_the_restart() -> None:
    town = Town()
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.begin(1, "prepared", "d")
    kept = (a.report, b.report)
    town.join(a, b)
    told = town.last
    a.report, b.report = kept
    town.restart()
    town.register(a, b)
    town.join(a)
    assert a.told == told
    assert a.report.committed_step == 1
    town.join(b)
    assert b.told == told


def test_a_disk_that_is_older_than_what_members_know_counts_as_lost() -> None:
    town = Town()
    a, b = town.start("a", "b")
    old = town.saved
    town.join(a, b)
    assert town.last.epoch == Epoch(1, 2)
    town.restart(saved=old)
    town.register(a, b)
    town.join(a)
    town.wait(2.0)
    assert a.asking
    assert "b, a member of the largest quorum heard of" in a.waiting
    town.join(b)
    assert town.last.epoch == Epoch(2, 1)


def test_a_service_without_its_disk_waits_before_it_believes_the_first_who_comes() -> None:
    town = Town(ledger_steps=9)
    fresh, old = town.peer("z"), town.peer("a")
    old.become(committed_step=9, fingerprint="f9", last_quorum=record(3, 5, "a"), seen_term=3)
    town.register(fresh)
    town.join(fresh)
    town.wait(2.0)
    assert fresh.asking
    town.register(old)
    town.wait(6.0)
    assert old.pending == "z#0 is ready to join"
    town.join(old)
    assert town.last.epoch == Epoch(4, 1)
    assert (names(town.last), learners(town.last)) == (["a"], ["z"])
    assert not town.all(Refuse)


def test_members_of_an_older_quorum_than_the_ledger_tells_of_do_not_go_on_from_their_state() -> (
    None
):
    town = Town(ledger_steps=9)
    old = town.peer("a")
    old.become(committed_step=4, fingerprint="f4", last_quorum=record(3, 5, "a"), seen_term=3)
    old.become(restorable_step=2)
    town.register(old)
    town.wait(6.0)
    town.join(old)
    assert (town.last.start, town.last.committed_step) == ("restore", 2)
    assert "the ledger tells of 9 steps, 4 are left" in town.last.reason


# -- the end ------------------------------------------------------------------------------------


def test_the_run_is_finished_when_every_member_is_done_and_all_who_come_are_told() -> None:
    town = Town()
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.commit(10)
        peer.become(done=True)
    town.join(a)
    late = town.peer("c")
    town.register(late)
    town.join(late)
    town.join(b)
    assert town.last.finished
    assert late.told is not None
    assert late.told.finished
    assert town.machine.finished
    town.restart()
    later = town.peer("d")
    town.register(later)
    town.join(later)
    assert later.told is not None
    assert later.told.finished
    assert later.seat == seat("d")


def finished_run(town: Town) -> list[Peer]:
    """Bring two replicas to the end of a run, as its service knows."""
    peers = town.start("a", "b")
    for peer in peers:
        peer.commit(10)
        peer.become(done=True)
    town.join(*peers)
    assert town.last.finished
    return peers


def test_an_end_that_died_with_all_who_knew_it_is_come_to_again() -> None:
    town = Town()
    town.die(*finished_run(town))
    new = town.peer("a", incarnation=1)
    new.become(restorable_step=8)
    town.register(new)
    town.join(new)
    told = town.last
    assert (told.finished, told.start, told.committed_step) == (False, "restore", 8)
    assert told.epoch == Epoch(2, 1)


def test_one_that_exited_by_itself_has_told_of_the_end() -> None:
    town = Town()
    a, b = finished_run(town)
    town.do(DeathReported(a.member, "exited with code 0", clean=True))
    town.die(b)
    late = town.peer("b", incarnation=1)
    town.register(late)
    town.join(late)
    assert late.told is not None
    assert late.told.finished


def test_ranks_that_end_one_after_the_other_when_the_run_is_finished_are_left_in_peace() -> None:
    town = Town()
    ranks = [town.peer("a", rank, num_ranks=2) for rank in (0, 1)]
    for peer in ranks:
        peer.become(committed_step=10, done=True)
        town.register(peer)
    for peer in ranks:
        town.join(peer)
    assert town.last.finished
    town.die(ranks[0])
    assert not town.all(Fence)


def test_a_divergence_whose_healing_could_not_be_saved_is_still_the_first() -> None:
    town = Town()
    a, b = town.start("a", "b")
    for peer in (a, b):
        peer.commit(4)
    b.become(fingerprint="flipped")
    machine = town.machine
    machine.handle(JoinAsked(Join(a.seat, a.report, 7)), 101.0)
    out = machine.handle(JoinAsked(Join(b.seat, b.report, 7)), 101.0)
    assert [o.saved.diverged for o in out if isinstance(o, Persist)] == [(4,)]
    machine.handle(DiskFailed("no space left"), 101.0)
    out = machine.handle(TimePassed(), 102.5)
    assert not [o for o in out if isinstance(o, Refuse)]
    assert [o.saved.diverged for o in out if isinstance(o, Persist)] == [(4,)]
