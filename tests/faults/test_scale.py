"""A run is scaled up and down, and its hosts are restarted, while it trains: the bits stay."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from tests.faults.paced_runs import has_left, nothing_is_lost, worker

from danaus.app.crew_file import CrewRecord, read_crew
from danaus.app.door import Door, Drain, Roll, Scale
from danaus.app.events import Event
from danaus.core.errors import ConfigError
from danaus.testing.runs import Shape, finish, running

LIMIT_S = 60.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_three_five_two_and_the_same_bits(paced, same_bits):
    run = paced(Shape(replicas=3, leaves=5, steps=120))
    with same_bits(run) as watch:
        door = Door(run.folder)
        assert door.ask(Scale(5), LIMIT_S).words.startswith("3 replicas became 5")
        watch.until_members(5, limit_s=90)
        words = door.ask(Scale(2), LIMIT_S).words
        assert "replica-4 has left" in words
        watch.until_members(2)
        for number in (2, 3, 4):
            has_left(watch, f"replica-{number}")
        nothing_is_lost(watch)
        assert read_crew(run.folder.control) == CrewRecord((0, 1))
        with pytest.raises(ConfigError, match="at most 5"):
            door.ask(Scale(6), LIMIT_S)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_that_is_resumed_has_the_replicas_that_it_was_scaled_to(paced, undisturbed, tmp_path):
    run = paced(Shape(replicas=1, leaves=3, steps=60))
    with running(run) as going:
        going.watch.until_step(3, limit_s=60)
        with pytest.raises(ConfigError, match="0 of 1"):
            Door(run.folder).ask(Drain("replica-0"), LIMIT_S)
        Door(run.folder).ask(Scale(2), LIMIT_S)
        going.watch.until_members(2, limit_s=60)
        Door(run.folder).ask(Drain("replica-0"), LIMIT_S)
        has_left(going.watch, "replica-0")
        assert read_crew(run.folder.control) == CrewRecord((1,))
        Door(run.folder).ask(Scale(2), LIMIT_S)
        going.watch.until_members(2, limit_s=60)
        going.launched.stop("the test stops it")
    began = going.watch.events(Event.RUN_STARTED)
    (tmp_path / "fast").touch()
    assert finish(run.again(), limit_s=120).sha256 == undisturbed(run)
    again = going.watch.events(Event.RUN_STARTED)[len(began) :]
    assert [line["replicas"] for line in again] == [["replica-0", "replica-1"]]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_death_while_the_run_is_scaled_changes_nothing(paced, same_bits):
    run = paced(Shape(replicas=3, leaves=3, steps=100))
    with same_bits(run) as watch:
        door = Door(run.folder)
        os.kill(worker(watch, 2), signal.SIGSTOP)  # it hangs while it is to leave
        words = door.ask(Scale(2), LIMIT_S).words
        assert "replica-2 died" in words
        watch.until_members(2)
        rising = threading.Thread(target=door.ask, args=(Scale(3), LIMIT_S))
        rising.start()
        os.kill(worker(watch, 0), signal.SIGKILL)
        rising.join()
        watch.until_members(3, limit_s=90)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hosts_are_restarted_one_by_one(paced, same_bits):
    run = paced(Shape(replicas=2, leaves=3, steps=200))
    with same_bits(run) as watch:
        door = Door(run.folder)
        agents = [watch.pids(host)["agent"] for host in (0, 1)]
        first = door.ask(Roll(), 120.0)
        assert first.more
        assert "replica-0 is back" in first.words
        assert read_crew(run.folder.control).rolled == (0,)
        second = door.ask(Roll(), 120.0)
        assert not second.more
        assert read_crew(run.folder.control).rolled == ()
        assert not {*agents} & {watch.pids(host)["agent"] for host in (0, 1)}
        nothing_is_lost(watch)
