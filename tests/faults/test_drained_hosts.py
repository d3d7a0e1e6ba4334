"""Runs over hosts: one is told to end, its replica moves to an empty one; one is restarted."""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.lab_runs import lab_run, pid_here
from tests.faults.paced_runs import has_left, nothing_is_lost
from tests.faults.test_several_machines import spread
from tests.procs.waiting import machines

from danaus.app.door import Door, Drain, Roll
from danaus.app.events import Event
from danaus.testing.lab import Lab
from danaus.testing.runs import Shape, running

assert Lab  # labs are made one after the other


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_that_is_told_to_end_lets_its_replica_move_and_another_is_restarted(
    tmp_path, undisturbed
):
    with machines(tmp_path, 3) as hosts:
        run = spread(tmp_path, hosts, Shape(replicas=2, leaves=3, steps=300))
        with running(run) as going:
            watch, door = going.watch, Door(run.folder)
            watch.until_members(2, limit_s=90)
            assert hosts[1].end(signal.SIGTERM) == 0
            has_left(watch, "replica-1")
            watch.until(
                "replica-1 on the empty host",
                lambda: watch.events(
                    Event.PROCESS_STARTED, replica="replica-1", process_id="host2/replica-1/0#1"
                ),
                limit_s=60,
            )
            # The newest step may still be one that it took before it left.
            watch.until(
                "replica-1 to be counted again",
                lambda: any(
                    "replica-1/0#1" in told["members"]
                    for told in watch.events(Event.QUORUM_ANNOUNCED)
                ),
                limit_s=60,
            )
            words = door.ask(Roll("host0"), 120.0).words
            assert "replica-0 is back" in words
            words = door.ask(Drain("host0"), 60.0).words
            assert "replica-0 has left" in words
            watch.until_members(1)
            nothing_is_lost(watch)
            (tmp_path / "fast").touch()
            assert going.result(120).sha256 == undisturbed(run)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_agent_in_a_lab_that_is_told_to_end_costs_no_step(tmp_path):
    with lab_run(tmp_path, 3) as run:
        run.full()
        os.kill(pid_here(run, "host2", Event.HOST_JOINED), signal.SIGTERM)
        left = run.watch.until("its leaving", lambda: run.watch.events(Event.REPLICA_LEFT))
        run.watch.until_members(2)
        nothing_is_lost(run.watch)
        run.full()
        assert run.said(Event.HOST_LEAVING)
        assert left[0]["replica"] in {"replica-0", "replica-1", "replica-2"}
        run.finish()
