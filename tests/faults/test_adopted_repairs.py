"""A-12, H-3: a controller dies while one rank is repaired; the next goes on with that replica."""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.paced_runs import (
    STEP_S,
    adopted,
    back,
    finished,
    kill,
    paced_run,
    pid_of,
    repairs,
    workers,
)

from danaus.app.events import Event
from danaus.testing.runs import Shape, running
from danaus.testing.watching import RunWatch

SHAPE = Shape(replicas=2, ranks=2, leaves=4, steps=120)

DIES = """
import os, signal
from danaus.actor.process_runtime import get_runtime
from danaus.app.rank_repair import RankRepair
from danaus.app.replica_ranks import ReplicaRanks
from danaus.app.replica_record import ReplicaRecord

async def nothing():
    pass

def die(*args, **kwargs):
    get_runtime().io.run(nothing(), 10.0)  # what was posted before is done
    os.kill(os.getpid(), signal.SIGKILL)

async def told(self, job, lost, telling):
    await telling
    die()

def started(self, process, write=ReplicaRecord.started):
    write(self, process)
    if process.incarnation:
        die()
"""
MOMENTS = {
    "its siblings were told": ("RankRepair._start = told", 2),
    "a process was asked for": ("ReplicaRanks.replace = die", 2),
    "it listens": ("ReplicaRecord.adopted = die", 2),
    "it was written down whose it is": ("ReplicaRecord.started = started", 1),
    "all have met": ("ReplicaRecord.repaired = die", 1),
}
"""When it dies, how it does, and the incarnation under which the next has the replica go on."""


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("moment", MOMENTS)
def test_its_siblings_live_on_whenever_the_controller_dies(
    moment, controlled, undisturbed, tmp_path
):
    """A process that nobody is known to be is ended; another takes the place of the lost one."""
    dies, incarnation = MOMENTS[moment]
    run = paced_run(tmp_path, SHAPE, detached=True, watchdog=False)
    watch = RunWatch(run.folder)
    first = controlled(run, DIES + dies)
    watch.until_members(2, limit_s=60)
    sibling = pid_of(watch, 1, 0)
    os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
    assert first.wait(60) == -signal.SIGKILL
    with running(run.again()) as going:
        assert set(adopted(watch)["living"]) == {"replica-0", "replica-1"}
        back(watch, 1, incarnation)
        watch.until_members(2)
        names = {name: pid for name, pid in workers(watch, 2).items() if "replica-1/" in name}
        assert names == {
            "host1/replica-1/0#0": sibling,
            f"host1/rank1-of-replica-1/0#{incarnation}": pid_of(watch, 1, 1),
        }
        assert finished(going, tmp_path) == undisturbed(run)
    assert not watch.events(Event.RANK_NOT_REPAIRED)
    assert not watch.events(Event.RUN_RESUMED)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_sibling_waits_for_a_controller_that_comes_late(controlled, undisturbed, tmp_path):
    run = paced_run(tmp_path, SHAPE, detached=True, watchdog=False)
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(2, limit_s=60)
    kill(first)
    sibling = pid_of(watch, 1, 0)
    os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
    watch.until_members(1)
    watch.until_moved(round(12.0 / STEP_S), limit_s=90)
    with running(run.again()) as going:
        back(watch, 1, 1)
        watch.until_members(2)
        assert repairs(watch, 1) == [(1, [sibling])]
        assert finished(going, tmp_path) == undisturbed(run)
    assert not watch.events(Event.RANK_NOT_REPAIRED)
