"""A-12, P-4: the controller of a detached run dies; another adopts the run, nothing restarts."""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.paced_runs import adopted, finished, kill, paced_run, workers
from tests.procs.waiting import machines

from danaus.app.chaos_spec import read as read_fault
from danaus.app.door import Door, Drain, Scale
from danaus.app.events import Event
from danaus.job.local import HOLDINGS
from danaus.testing.faults import WaitForDisk
from danaus.testing.hosts import Watched, wait_for_state
from danaus.testing.runs import Shape, finish, running
from danaus.testing.watching import RunWatch

SHAPE = Shape(replicas=3, leaves=3, steps=120)
STEP_S = 0.2


@pytest.fixture
def run(tmp_path):
    """A detached run whose steps take their time until the file ``fast`` is there."""
    return detached(tmp_path, SHAPE)


def detached(tmp_path, shape, **more):
    """Return a run that goes on without its controller, and that nobody starts another for."""
    more = {"detached": True, "watchdog": False, **more}
    return paced_run(tmp_path, shape, step_s=STEP_S, also=(WaitForDisk(),), **more)


@pytest.mark.timeout(120)
def test_a_new_controller_adopts_what_lives_and_the_bits_are_the_same(
    run, controlled, undisturbed, tmp_path
):
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(3, limit_s=60)
    before, service = workers(watch, 3), watch.service_pid()
    kill(first)
    watch.until_moved(2)
    with running(run.again()) as going:
        line = adopted(watch)
        assert line["living"] == {f"replica-{n}": 0 for n in range(3)}
        assert line["gone"] == []
        watch.until_moved(2)
        assert workers(watch, 3) == before, "nothing was started again"
        assert watch.service_pid() == service
        # Whoever dies now is started again, by the new controller.
        victim = before["host1/replica-1/0#0"]
        os.kill(victim, signal.SIGKILL)
        watch.until("it starts again", lambda: watch.events("process_started", incarnation=1))
        watch.until_members(3)
        # The service, too.
        os.kill(service, signal.SIGKILL)
        watch.until("another service", lambda: watch.events("service_restarted"))
        watch.until_moved(2)
        # And what the door is asked for is done.
        door = Door(run.folder)
        door.strike(read_fault("kill:replica=0"))
        watch.until("its end", lambda: watch.events("process_exited", replica="replica-0"))
        watch.until_members(3)
        assert "has left" in door.ask(Drain("replica-2"), None).words
        door.ask(Scale(3), None)
        watch.until_members(3)
        assert finished(going, tmp_path) == undisturbed(run)
    assert not watch.events(Event.RUN_RESUMED), "somebody was always alive"
    assert not watch.events(Event.REPLICA_FAILED)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_who_dies_without_a_controller_is_started_again_by_the_next(
    run, controlled, undisturbed, tmp_path
):
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(3, limit_s=60)
    before = workers(watch, 3)
    kill(first)
    os.kill(before["host0/replica-0/0#0"], signal.SIGKILL)
    watch.until("its agent to know", lambda: "host0/replica-0/0#0" not in watch.pids(0))
    os.kill(watch.service_pid(), signal.SIGKILL)
    agent = Watched(watch.pids(2)["agent"])
    agent.signal(signal.SIGKILL)
    assert agent.ends_within(10)
    agent.close()
    with running(run.again()) as going:
        line = adopted(watch)
        assert line["living"] == {"replica-1": 0}
        assert line["gone"] == ["replica-0", "replica-2"]
        (death,) = watch.until(
            "its death is told", lambda: watch.events("process_exited", replica="replica-0")
        )
        assert death["signal"] == "SIGKILL"
        watch.until_members(3, limit_s=60)
        assert workers(watch, 3)["host1/replica-1/0#0"] == before["host1/replica-1/0#0"]
        (tmp_path / "fast").touch()
        result = going.result(60)
    assert result.sha256 == undisturbed(run)
    assert result.num_restarts == 2
    assert not watch.events(Event.RUN_RESUMED)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_controller_dies_while_a_replica_starts_and_then_the_next(
    run, controlled, undisturbed, tmp_path
):
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(3, limit_s=60)
    os.kill(workers(watch, 3)["host1/replica-1/0#0"], signal.SIGKILL)
    watch.until("another life of it", lambda: watch.folder.incarnations()["replica-1"] == 1)
    kill(first)
    second = controlled(run.again())
    adopted(watch)
    watch.until_members(3, limit_s=60)
    held = workers(watch, 3)
    kill(second)
    with running(run.again()) as going:
        adopted(watch, 2)
        watch.until_moved(2)
        assert workers(watch, 3) == held
        assert finished(going, tmp_path) == undisturbed(run)
    assert not watch.events(Event.RUN_RESUMED)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_run_that_came_to_its_end_without_a_controller_is_concluded(
    run, controlled, undisturbed, tmp_path
):
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(3, limit_s=60)
    held = [Watched(pid) for pid in workers(watch, 3).values()]
    kill(first)
    (tmp_path / "fast").touch()
    watch.until_step(SHAPE.steps, limit_s=60)
    # Adopted while they still are there, or, where they have ended by then, from the checkpoint.
    assert finish(run.again(), limit_s=60).sha256 == undisturbed(run)
    assert all(each.ends_within(10.0) for each in held)
    for each in held:
        each.close()
    assert finish(run.again(), limit_s=60).sha256 == undisturbed(run), "nothing is left of it"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_stopped_controller_is_replaced_on_demand_and_wakes_up_no_more(
    run, controlled, undisturbed, tmp_path
):
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(3, limit_s=60)
    before = workers(watch, 3)
    first.send_signal(signal.SIGSTOP)
    assert wait_for_state(first.pid, "T")
    with running(run.again(take_over=True)) as going:
        assert first.wait(10) == -signal.SIGKILL
        adopted(watch)
        watch.until_moved(2)
        assert workers(watch, 3) == before
        assert finished(going, tmp_path) == undisturbed(run)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_spares_and_replicas_of_several_ranks_are_adopted_as_they_are(
    controlled, undisturbed, tmp_path
):
    run = detached(tmp_path, Shape(replicas=2, ranks=2, leaves=4, steps=120), spares=1)
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(2, limit_s=60)
    watch.until("a spare", lambda: watch.events(Event.SPARE_READY), limit_s=60)
    # The spare becomes a replica, and another one is made ready.
    host = watch.pids(1)
    for name in [name for name in host if "/replica-1/" in name]:
        os.kill(host[name], signal.SIGKILL)
    watch.until("its use", lambda: watch.events(Event.SPARE_USED))
    watch.until("another", lambda: len(watch.events(Event.SPARE_READY)) == 2, limit_s=60)
    watch.until_members(2, limit_s=60)
    before, newest = workers(watch, 3), watch.folder.incarnations()["replica-1"]
    kill(first)
    with running(run.again()) as going:
        line = adopted(watch)
        assert line["living"] == {"replica-0": 0, "replica-1": newest}
        watch.until("the spare, again", lambda: len(watch.events(Event.SPARE_READY)) == 3)
        watch.until_moved(2)
        assert workers(watch, 3) == before
        # And it is of use.
        for pid in [pid for name, pid in before.items() if "/replica-0/" in name]:
            os.kill(pid, signal.SIGKILL)
        watch.until("its use", lambda: len(watch.events(Event.SPARE_USED)) == 2)
        watch.until_members(2, limit_s=60)
        assert finished(going, tmp_path) == undisturbed(run)
    assert not watch.events(Event.RUN_RESUMED)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_controller_that_cannot_adopt_ends_nothing(run, controlled, undisturbed, tmp_path):
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(3, limit_s=60)
    before = workers(watch, 3)
    kill(first)
    record = watch.folder.control / HOLDINGS
    record.rename(record.with_suffix(".away"))
    record.mkdir()
    with pytest.raises(IsADirectoryError):
        finish(run.again(), limit_s=30)
    record.rmdir()
    record.with_suffix(".away").rename(record)
    watch.until_moved(2)
    assert workers(watch, 3) == before
    assert not watch.events(Event.RUN_FAILED), "it was not the run that failed"
    with running(run.again()) as going:
        adopted(watch)
        assert finished(going, tmp_path) == undisturbed(run)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_replica_whose_rank_was_repaired_is_adopted_as_it_is_and_repaired_again(
    controlled, undisturbed, tmp_path
):
    """H-3: of two meshes, one of which has a dead process; then of three."""
    run = detached(tmp_path, Shape(replicas=2, ranks=2, leaves=4, steps=120))
    watch = RunWatch(run.folder)
    first = controlled(run)
    watch.until_members(2, limit_s=60)
    os.kill(watch.pids(1)["host1/replica-1/0#0"], signal.SIGKILL)
    watch.until("its repair", lambda: watch.events(Event.RANK_REPAIRED), limit_s=60)
    watch.until_members(2, limit_s=60)
    before = workers(watch, 3)
    kill(first)
    # The other rank of the replica dies while there is no controller.
    os.kill(watch.pids(1)["host1/replica-1/1#0"], signal.SIGKILL)
    with running(run.again()) as going:
        watch.until("its repair", lambda: len(watch.events(Event.RANK_REPAIRED)) == 2, limit_s=60)
        assert set(adopted(watch)["living"]) == {"replica-0", "replica-1"}
        watch.until_members(2, limit_s=60)
        lost = {"host1/replica-1/1#0"}
        assert {name: pid for name, pid in before.items() if name not in lost}.items() <= workers(
            watch
        ).items()
        assert watch.folder.incarnations()["replica-1"] == 2
        assert finished(going, tmp_path) == undisturbed(run)
    assert not watch.events(Event.RUN_RESUMED)
    assert not watch.events(Event.RANK_NOT_REPAIRED)


# -- over machines that wait to be joined ---------------------------------------------------------


def on_machines(hosts):
    """Return the processes of each machine that were started for the run."""
    return [set(host.family[1:]) for host in hosts]


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_what_lives_on_other_machines_is_adopted_too(controlled, undisturbed, tmp_path):
    with machines(tmp_path, 2) as hosts:
        addresses = tuple(host.address for host in hosts)
        more = {"hosts": addresses, "secret": hosts[0].secret}
        run = detached(tmp_path, Shape(replicas=2, leaves=3, steps=120), **more)
        watch = RunWatch(run.folder)
        first = controlled(run)
        watch.until_members(2, limit_s=60)
        before, service = on_machines(hosts), watch.service_pid()
        assert all(len(each) >= 3 for each in before), "agent, nursery, worker"
        kill(first)
        watch.until_moved(2)
        second = controlled(run.again())
        adopted(watch)
        watch.until_moved(2)
        assert on_machines(hosts) == before, "nothing was started again"
        assert watch.service_pid() == service
        kill(second)
        # One machine goes down while there is no controller, and comes back after the adoption.
        hosts[1].end(signal.SIGKILL)
        watch.until_members(1)
        with running(run.again()) as going:
            line = adopted(watch, 2)
            assert (line["living"], line["gone"]) == ({"replica-0": 0}, ["replica-1"])
            assert watch.events(Event.HOST_LOST)
            assert on_machines(hosts[:1]) == before[:1]
            hosts[1].start()
            watch.until_members(2, limit_s=60)
            assert finished(going, tmp_path) == undisturbed(run)
        assert not watch.events(Event.RUN_RESUMED)
