"""P-7: each kind of process may be killed or stopped while the run trains; training goes on.

What is struck: a worker, a nursery, a host agent and the quorum service by the test that holds
the controller; the controller itself where it is a process of its own.  All ends with the bits of
an undisturbed run.
"""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.paced_runs import paced_run

from danaus.app.events import Event
from danaus.core.clock import Deadline
from danaus.testing.faults import WaitForDisk
from danaus.testing.hosts import Watched, wait_for_state
from danaus.testing.runs import Shape, finish, running
from danaus.testing.watching import RunWatch
from danaus.train.checkpoint import Checkpoints
from danaus.train.trainer import Trainer

SHAPE = Shape(replicas=3, leaves=3, steps=160)
STEP_S = 0.4
GONE_LIMIT_S = 10.0  # P-4


@pytest.fixture
def paced(tmp_path):
    """Return a run whose steps take their time until the file ``fast`` is there."""

    def make(**more):
        return paced_run(tmp_path, SHAPE, step_s=STEP_S, also=(WaitForDisk(),), **more)

    return make


def worker(watch, host):
    return next((pid for name, pid in watch.pids(host).items() if "/" in name), 0)


def strike(watch, pid, number):
    """Send a signal; return once it has worked and training has gone on without its victim."""
    os.kill(pid, number)
    assert (
        wait_for_state(pid, "T" if number == signal.SIGSTOP else "ZX") or number != signal.SIGSTOP
    )
    watch.until_moved(2)


def listening(watch, pid):
    watch.until("a service that listens", lambda: watch.events("quorum_listening", pid=pid))


def replaced(watch, find, pid):
    """Wait for another process in the place of one."""

    def another():
        found = find()
        return found if found not in (0, None, pid) else 0

    return watch.until(f"another process in the place of {pid}", another, limit_s=40)


@pytest.mark.timeout(240)
def test_training_goes_on_whatever_is_killed_or_stopped(paced, undisturbed, tmp_path):
    run = paced()
    with running(run) as going:
        watch = going.watch
        watch.until_members(3, limit_s=60)
        # The quorum service: members train on among themselves, and a new one goes on from disk.
        for number in (signal.SIGKILL, signal.SIGSTOP):
            pid = watch.service_pid()
            strike(watch, pid, number)
            listening(watch, replaced(watch, watch.service_pid, pid))
        # Nurseries: their workers are adopted; a worker that dies is forked from a new one.
        for host, number in ((0, signal.SIGKILL), (1, signal.SIGSTOP)):
            pid, lives = watch.pids(host)["nursery"], worker(watch, host)
            strike(watch, pid, number)
            assert worker(watch, host) == lives
            replaced(watch, lambda host=host: watch.pids(host).get("nursery"), pid)
            strike(watch, lives, signal.SIGKILL)
        watch.until_members(3)
        # Host agents: their workers end with them, and the host is started again.
        for host, number in ((0, signal.SIGKILL), (1, signal.SIGSTOP)):
            pid = watch.pids(host)["agent"]
            strike(watch, pid, number)
            replaced(watch, lambda host=host: watch.pids(host).get("agent"), pid)
        watch.until_members(3, limit_s=60)
        # A worker.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            pid = worker(watch, 2)
            os.kill(pid, number)
            replaced(watch, lambda: worker(watch, 2), pid)
            watch.until_members(3)
        (tmp_path / "fast").touch()
        result = going.result(90)
    assert result.sha256 == undisturbed(run)
    assert not watch.events(Event.RUN_RESUMED), "somebody was always alive"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_all_workers_killed_at_once_resume_from_the_checkpoint(paced, undisturbed, tmp_path):
    run = paced()
    with running(run) as going:
        watch = going.watch
        watch.until_step(6, limit_s=60)
        pids = [worker(watch, host) for host in range(SHAPE.replicas)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        resumed = watch.until("all to resume", lambda: watch.events(Event.RUN_RESUMED))
        assert {line["step"] for line in resumed} == {4}
        watch.until_members(3)
        (tmp_path / "fast").touch()
        assert going.result(60).sha256 == undisturbed(run)


# -- the controller ---------------------------------------------------------------------------


def everything(watch):
    """Return all processes of a run but its controller."""
    pids = [watch.service_pid()]
    for host in range(SHAPE.replicas):
        pids += watch.pids(host).values()
    return [pid for pid in pids if pid]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_killed_controller_takes_all_along_and_a_resumed_run_ends_with_the_same_bits(
    paced, controlled, undisturbed, tmp_path
):
    run = paced()
    watch = RunWatch(run.folder)
    process = controlled(run)
    watch.until_members(3, limit_s=60)
    # Stopped, it is on nobody's path.
    process.send_signal(signal.SIGSTOP)
    watch.until_step(watch.step + 6)
    process.send_signal(signal.SIGCONT)
    all_of_it = [Watched(pid) for pid in everything(watch)]
    for pid in (worker(watch, 0), watch.pids(1)["agent"], watch.pids(2)["nursery"]):
        os.kill(pid, signal.SIGSTOP)
        assert wait_for_state(pid, "T")
    os.kill(watch.service_pid(), signal.SIGSTOP)
    process.kill()
    gone_by = Deadline.after(GONE_LIMIT_S)
    left = [each.pid for each in all_of_it if not each.ends_within(gone_by.remaining_s())]
    for each in all_of_it:
        each.close()
    assert not left
    (tmp_path / "fast").touch()
    assert finish(run.again(), limit_s=90).sha256 == undisturbed(run)
    (resumed, *_) = watch.events(Event.RUN_RESUMED)
    assert resumed["step"] > 0


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_detached_workers_go_on_to_the_end_without_their_controller(
    paced, controlled, undisturbed, tmp_path
):
    run = paced(detached=True, watchdog=False)
    watch = RunWatch(run.folder)
    process = controlled(run)
    watch.until_members(3, limit_s=60)
    all_of_it = [Watched(pid) for pid in everything(watch)]
    process.kill()
    watch.until_moved(4)
    assert watch.num_members == SHAPE.replicas
    (tmp_path / "fast").touch()
    watch.until_step(SHAPE.steps, limit_s=60)
    # Their work is done and nobody will ask for it: they end by themselves.
    left = [each.pid for each in all_of_it if not each.ends_within(30.0)]
    for each in all_of_it:
        each.close()
    assert not left
    assert checkpoint_sha256(run) == undisturbed(run)


def checkpoint_sha256(run):
    """Return the hash of the state that the last checkpoint holds."""
    trainer = Trainer(run.config)
    checkpoints = Checkpoints(run.folder.checkpoints, identity=trainer.identity)
    trainer.load(checkpoints.read(run.config.step.num_steps)[0])
    return trainer.sha256()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_new_controller_that_adopts_nothing_ends_what_a_detached_one_left_and_resumes(
    paced, controlled, undisturbed, tmp_path
):
    run = paced(detached=True, watchdog=False)
    watch = RunWatch(run.folder)
    process = controlled(run)
    watch.until_step(6, limit_s=60)
    all_of_it = [Watched(pid) for pid in everything(watch)]
    process.kill()
    process.wait(10)
    (tmp_path / "fast").touch()
    assert finish(run.again(adopt=False), limit_s=90).sha256 == undisturbed(run)
    left = [each.pid for each in all_of_it if not each.ends_within(0.0)]
    for each in all_of_it:
        each.close()
    assert not left
