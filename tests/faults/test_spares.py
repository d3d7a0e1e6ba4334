"""H-4: a replica that dies is started again by a process that was ready; the bits stay."""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.paced_runs import finished, paced_run, worker

from danaus.app.chaos import FaultPlan
from danaus.app.events import Event
from danaus.testing.runs import Shape, running


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_spare_becomes_the_replica_that_died_and_another_spare_is_started(
    same_bits, tmp_path, ranks
):
    shape = Shape(replicas=2, ranks=ranks, leaves=3, steps=100)
    more = {"spares": 1, "repair": "replica"}  # of a spare one rank alone is of no use
    with same_bits(paced_run(tmp_path, shape, **more)) as watch:
        ready = watch.until("a spare", lambda: watch.events(Event.SPARE_READY), limit_s=60)
        assert ready[0]["spare"] == "spare-0"
        os.kill(worker(watch, 1), signal.SIGKILL)
        used = watch.until("its use", lambda: watch.events(Event.SPARE_USED))
        assert (used[0]["spare"], used[0]["replica"]) == ("spare-0", "replica-1")
        healed = watch.until("a heal", lambda: watch.events(Event.HEALED, replica="replica-1"))
        assert healed[0]["process_id"] == "host2/spare-0/0#0"
        assert healed[0]["incarnation"] == 1
        watch.until("another spare", lambda: len(watch.events(Event.SPARE_READY)) > 1, limit_s=60)
        # Whoever strikes replica-1 finds it under its new processes.
        os.kill(worker(watch, 2), signal.SIGKILL)
        exited = watch.until(
            "its end",
            lambda: watch.events(Event.PROCESS_EXITED, replica="replica-1", incarnation=1),
        )
        assert exited[0]["signal"] == "SIGKILL"
        watch.until("its use", lambda: len(watch.events(Event.SPARE_USED)) > 1)
        watch.until_members(2, limit_s=60)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_spare_that_dies_is_replaced_and_chaos_finds_a_replica_that_was_one(
    undisturbed, tmp_path
):
    plan = FaultPlan.parse("kill:replica=1,after=80steps", seed=1)
    run = paced_run(tmp_path, Shape(replicas=2, leaves=3, steps=200), spares=1, chaos=plan)
    with running(run) as going:
        watch = going.watch
        watch.until("a spare", lambda: watch.events(Event.SPARE_READY), limit_s=90)
        os.kill(worker(watch, 2), signal.SIGKILL)
        watch.until("its loss", lambda: watch.events(Event.SPARE_LOST))
        watch.until("another spare", lambda: len(watch.events(Event.SPARE_READY)) > 1, limit_s=60)
        os.kill(worker(watch, 1), signal.SIGKILL)
        watch.until("its use", lambda: watch.events(Event.SPARE_USED))
        struck = watch.until("a strike", watch.strikes, limit_s=60)
        assert struck[0]["replica"] == "replica-1"
        assert struck[0]["process_id"].endswith("/replica-1/0#1")
        assert finished(going, tmp_path) == undisturbed(run)
