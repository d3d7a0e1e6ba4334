"""H-3: one rank of a replica is lost, its sibling keeps process and shard, and the bits stay."""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.lab_runs import lab_run, pid_here
from tests.faults.paced_runs import back, paced_run, pid_of, repairs

from danaus.app.door import Door, Drain, Scale
from danaus.app.events import Event
from danaus.ft.observer import Moment
from danaus.testing.faults import FORWARD, Strike
from danaus.testing.lab import missing
from danaus.testing.runs import Shape
from danaus.testing.watching import RunWatch

SHAPE = Shape(replicas=3, ranks=2, leaves=3, steps=60)


@pytest.fixture
def paced(paced):
    """Return a function that makes a run of one shape; what it is given strikes replica-1."""
    return lambda *strikes, **more: paced(SHAPE, struck={"replica-1": strikes}, **more)


def who_fetched_a_shard(watch: RunWatch, replica: int) -> set[int]:
    """Return the ranks of a replica that fetched a whole shard when it was repaired."""
    lines = watch.events(Event.RANK_HEALED, replica=f"replica-{replica}", what="state")
    return {line["rank"] for line in lines}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_sibling_of_a_rank_that_dies_keeps_its_process_and_its_shard(paced, same_bits, rank):
    with same_bits(paced()) as watch:
        sibling = pid_of(watch, 1, 1 - rank)
        os.kill(pid_of(watch, 1, rank), signal.SIGKILL)
        back(watch, 1, 1)
        assert repairs(watch, 1) == [(rank, [sibling])]
        assert who_fetched_a_shard(watch, 1) == {rank}
    assert pid_of(watch, 1, 1 - rank) == sibling


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_both_siblings_of_a_rank_of_three_live_on_and_then_one_of_them_is_repaired_by_the_other(
    same_bits, tmp_path
):
    with same_bits(paced_run(tmp_path, Shape(replicas=2, ranks=3, leaves=2, steps=60))) as watch:
        first, last = pid_of(watch, 1, 0), pid_of(watch, 1, 2)
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        back(watch, 1, 1)
        new = pid_of(watch, 1, 1)
        os.kill(first, signal.SIGKILL)  # it has lived under two names
        back(watch, 1, 2)
        assert repairs(watch, 1) == [(1, [first, last]), (0, [new, last])]
        assert who_fetched_a_shard(watch, 1) == {0, 1}
    assert pid_of(watch, 1, 2) == last


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_repaired_from_the_same_rank_on_another_host(undisturbed, tmp_path, rank):
    with lab_run(tmp_path, 2, ranks=2, steps=80) as run:
        run.full()
        watch = run.watch
        sibling = pid_of(watch, 1, 1 - rank)
        victim = {"replica": "replica-1", "rank": rank}
        os.kill(pid_here(run, "host2", Event.PROCESS_STARTED, **victim), signal.SIGKILL)
        back(watch, 1, 1)
        assert repairs(watch, 1) == [(rank, [sibling])]
        assert who_fetched_a_shard(watch, 1) == {rank}
        assert run.finish().sha256 == undisturbed(run.going.run)
        assert pid_of(watch, 1, 1 - rank) == sibling


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ranks_of_two_replicas_die_at_once_and_one_of_them_twice(paced, same_bits):
    with same_bits(paced()) as watch:
        kept = pid_of(watch, 1, 1), pid_of(watch, 2, 0)
        for victim in (pid_of(watch, 1, 0), pid_of(watch, 2, 1)):
            os.kill(victim, signal.SIGKILL)
        back(watch, 1, 1)
        back(watch, 2, 1)
        # The one that lived on dies now, and the new one lives on.
        new = pid_of(watch, 1, 0)
        os.kill(kept[0], signal.SIGKILL)
        back(watch, 1, 2)
        assert repairs(watch, 1) == [(0, [kept[0]]), (1, [new])]
        assert repairs(watch, 2) == [(1, [kept[1]])]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_rank_that_hangs_is_killed_and_its_sibling_lives_on(paced, same_bits):
    with same_bits(paced()) as watch:
        sibling, victim = pid_of(watch, 1, 0), pid_of(watch, 1, 1)
        os.kill(victim, signal.SIGSTOP)
        back(watch, 1, 1)
        assert repairs(watch, 1) == [(1, [sibling])]
        assert who_fetched_a_shard(watch, 1) == {1}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_inside_a_leaf_is_killed_alone(paced, same_bits, rank):
    """Its sibling, too, stands at that leaf: it waits for the other's part of a layer."""
    hang = Strike(FORWARD, 3, incarnation=0, rank=rank, number=signal.SIGSTOP, at_strength=3)
    with same_bits(paced(hang)) as watch:
        watch.until("the hang", watch.strikes, limit_s=60)
        sibling = pid_of(watch, 1, 1 - rank)
        back(watch, 1, 1)
        assert repairs(watch, 1) == [(rank, [sibling])]
        assert who_fetched_a_shard(watch, 1) == {rank}
    assert pid_of(watch, 1, 1 - rank) == sibling


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("rank", "moment"), [(0, Moment.LEARNING), (0, Moment.REPLAYED), (1, Moment.LEARNING)]
)
def test_a_rank_dies_while_the_repaired_replica_learns(paced, same_bits, rank, moment):
    with same_bits(paced(Strike(moment, rank=rank, incarnation=1))) as watch:
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        watch.until("the strike", watch.strikes, limit_s=60)
        back(watch, 1, 2)
        assert [rank for rank, _ in repairs(watch, 1)] == [1, rank]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_sibling_that_dies_during_the_repair_has_the_replica_started_whole(paced, same_bits):
    with same_bits(paced()) as watch:
        sibling = pid_of(watch, 1, 0)
        os.kill(sibling, signal.SIGSTOP)  # it cannot take part in a repair
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        watch.until(
            "the repair to begin",
            lambda: watch.events(Event.PROCESS_STARTED, replica="replica-1", incarnation=1),
        )
        os.kill(sibling, signal.SIGKILL)
        watch.until("its end", lambda: watch.events(Event.RANK_NOT_REPAIRED), limit_s=30)
        back(watch, 1, 2)
        assert repairs(watch, 1) == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_sibling_that_hangs_has_the_replica_started_whole(paced, same_bits):
    with same_bits(paced()) as watch:
        os.kill(pid_of(watch, 1, 0), signal.SIGSTOP)
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        watch.until("its end", lambda: watch.events(Event.RANK_NOT_REPAIRED), limit_s=30)
        back(watch, 1, 2)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_where_repair_is_not_wanted_all_ranks_are_started_again(paced, same_bits):
    with same_bits(paced(repair="replica")) as watch:
        sibling = pid_of(watch, 1, 0)
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        back(watch, 1, 1)
        assert repairs(watch, 1) == []
        assert pid_of(watch, 1, 0) != sibling


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_rank_is_repaired_while_the_quorum_service_is_away(paced, same_bits):
    with same_bits(paced()) as watch:
        sibling = pid_of(watch, 1, 0)
        os.kill(watch.service_pid(), signal.SIGKILL)
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        back(watch, 1, 1)
        assert repairs(watch, 1) == [(1, [sibling])]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_rank_of_what_was_a_spare_is_repaired_where_it_lives(paced, same_bits):
    with same_bits(paced(spares=1)) as watch:
        watch.until("a spare", lambda: watch.events(Event.SPARE_READY), limit_s=60)
        os.kill(pid_of(watch, 1, 0), signal.SIGSTOP)
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        watch.until("its use", lambda: watch.events(Event.SPARE_USED), limit_s=60)
        back(watch, 1, 2)
        sibling = pid_of(watch, 1, 1)
        os.kill(pid_of(watch, 1, 0), signal.SIGKILL)
        back(watch, 1, 3)
        assert repairs(watch, 1) == [(0, [sibling])]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_replica_that_is_drained_while_it_is_repaired_is_gone_at_once(paced, same_bits):
    run = paced()
    with same_bits(run) as watch:
        os.kill(pid_of(watch, 1, 0), signal.SIGSTOP)  # the repair waits for it
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        watch.until(
            "the repair to begin",
            lambda: watch.events(Event.PROCESS_STARTED, replica="replica-1", incarnation=1),
        )
        Door(run.folder).ask(Drain("replica-1"), 20.0)
        assert repairs(watch, 1) == []
        watch.until_members(2)
        Door(run.folder).ask(Scale(3), 20.0)
        back(watch, 1, 2)
