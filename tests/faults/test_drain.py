"""Who is asked to leave finishes its step: no step is discarded, nobody waits, the bits stay."""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.paced_runs import finished, has_left, nothing_is_lost, worker

from danaus.app.events import Event
from danaus.testing.runs import Shape, running


@pytest.mark.timeout(240)
def test_a_worker_and_a_host_that_get_sigterm_leave_after_their_step(paced, same_bits):
    with same_bits(paced(Shape(replicas=3, leaves=3, steps=100))) as watch:
        os.kill(worker(watch, 1), signal.SIGTERM)
        left = has_left(watch, "replica-1")
        assert "SIGTERM" in left["reason"]
        assert not left["saved"]
        watch.until_members(3)
        os.kill(watch.pids(2)["agent"], signal.SIGTERM)
        has_left(watch, "replica-2")
        watch.until("host 2 to be lost", lambda: watch.events(Event.HOST_LOST, host="host2"))
        watch.until_members(3, limit_s=60)
        nothing_is_lost(watch)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_last_member_writes_a_checkpoint_before_it_ends(paced, undisturbed, tmp_path):
    run = paced(Shape(replicas=1, ranks=2, leaves=3, steps=24))
    with running(run) as going:
        watch = going.watch
        watch.until_step(5, limit_s=60)
        os.kill(worker(watch, 0), signal.SIGTERM)
        left = has_left(watch, "replica-0", num_ranks=2)
        step = left["step"]
        assert left["saved"]
        assert watch.events(Event.CHECKPOINT_WRITTEN, step=step)
        resumed = watch.until("a new start", lambda: watch.events(Event.RUN_RESUMED))
        assert {line["step"] for line in resumed} == {step}
        assert not watch.events(Event.STEP_DISCARDED)
        assert finished(going, tmp_path) == undisturbed(run)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_who_is_killed_or_hangs_while_it_leaves_is_dead_like_any_other(paced, same_bits):
    with same_bits(paced(Shape(replicas=3, leaves=3, steps=100))) as watch:
        victim = worker(watch, 1)
        os.kill(victim, signal.SIGTERM)
        os.kill(victim, signal.SIGKILL)
        killed = watch.until("a death", lambda: watch.events(Event.PROCESS_EXITED, incarnation=0))
        assert killed[0]["signal"] == "SIGKILL"
        successor = "replica-1/0#1"
        watch.until(
            "its successor's entry",
            lambda: any(successor in line["members"] for line in watch.events("quorum_announced")),
            limit_s=60,
        )
        victim = worker(watch, 2)
        os.kill(victim, signal.SIGTERM)
        os.kill(victim, signal.SIGSTOP)
        watch.until(
            "the end of one that hangs",
            lambda: watch.events(Event.PROCESS_EXITED, replica="replica-2", signal="SIGKILL"),
            limit_s=30,
        )
        watch.until_members(3, limit_s=60)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_leave_at_once_and_one_while_the_service_is_away(paced, same_bits):
    with same_bits(paced(Shape(replicas=3, leaves=3, steps=100))) as watch:
        for host in (0, 2):
            os.kill(worker(watch, host), signal.SIGTERM)
        has_left(watch, "replica-0")
        has_left(watch, "replica-2")
        watch.until_members(3, limit_s=60)
        os.kill(watch.service_pid(), signal.SIGKILL)
        os.kill(worker(watch, 1), signal.SIGTERM)
        has_left(watch, "replica-1")
        watch.until_members(3, limit_s=60)
        nothing_is_lost(watch)
