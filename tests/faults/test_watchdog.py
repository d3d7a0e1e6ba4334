"""P-4: a watchdog starts the controller of a detached run again, and ends with the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.paced_runs import adopted, workers

from danaus.actor.found_process import FoundProcess
from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.app.run_lock import RunLock
from danaus.app.watchdog import WATCHDOG_LOCK
from danaus.cli.main import main as danaus
from danaus.testing.hosts import Watched, wait_for_state
from danaus.testing.watching import RunWatch

SOURCE = Path(__file__).parents[2] / "src"
COMMAND = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from danaus.cli.main import main; main()"
)
STEPS = 4000
LIMIT_S = 30.0


@pytest.fixture
def train(tmp_path):
    """Start ``danaus train`` detached; what is left of the run is ended with the test."""
    folder, started = tmp_path / "run", []

    def start(*more: str) -> subprocess.Popen[bytes]:
        words = ["train", *more] if more else ["train", "debug", *OPTIONS, f"--run-dir={folder}"]
        with (tmp_path / "shown").open("ab") as shown:
            command = [sys.executable, "-c", COMMAND, str(SOURCE), *words]
            started.append(subprocess.Popen(command, stdout=shown, stderr=shown))
        return started[-1]

    yield start
    if (folder / "config.toml").is_file():
        assert danaus(["stop", str(folder)]) == 0
    for process in started:
        process.kill()
        process.wait(LIMIT_S)


OPTIONS = ("--detached", "--replicas", "2", "--steps", str(STEPS), "--checkpoint.every-steps", "50")


@pytest.fixture
def watch(tmp_path, train):
    process = train()
    config = tmp_path / "run" / "config.toml"
    watched = Watched(process.pid)
    while not config.is_file():
        assert not watched.ends_within(0.05), (tmp_path / "shown").read_text()
    watched.close()
    seen = RunWatch(RunFolder.open(tmp_path / "run"))
    seen.until_members(2, limit_s=60)
    return seen


def controller(watch):
    return RunLock(watch.folder.path).holder()[0]


def watchdog(watch):
    """Return the pid of the living watchdog."""
    lock = RunLock(watch.folder.path, WATCHDOG_LOCK)

    def alive():
        found = FoundProcess.find(*lock.holder())
        if found is None or lock.is_free:
            return 0
        found.close()
        return found.pid

    return watch.until("a watchdog", alive)


@pytest.mark.timeout(150)
def test_the_watchdog_and_the_controller_start_each_other_again_until_the_run_is_stopped(watch):
    held, first = workers(watch, 2), controller(watch)
    dog = watchdog(watch)
    os.kill(first, signal.SIGKILL)
    adopted(watch, 1)
    second = controller(watch)
    assert second != first
    (restart,) = watch.events(Event.CONTROLLER_RESTARTED)
    assert restart["pid"] == second
    assert f"the controller (pid {first}) has ended" in restart["reason"]
    # The watchdog dies: the controller that it has started starts another.
    os.kill(dog, signal.SIGKILL)
    watch.until("another is started", lambda: len(watch.events(Event.WATCHDOG_STARTED)) == 2)
    other = watch.until("another one", lambda: (w := watchdog(watch)) != dog and w)
    os.kill(second, signal.SIGKILL)
    adopted(watch, 2)
    watch.until_moved(2)
    assert workers(watch, 2) == held, "nothing was started again"
    assert not watch.events(Event.RUN_RESUMED) + watch.events(Event.PROCESS_EXITED)
    everything = [
        Watched(pid)
        for pid in (other, controller(watch), watch.service_pid(), *watch.pids(0).values())
    ]
    assert danaus(["stop", str(watch.folder.path)]) == 0
    assert all(each.ends_within(10.0) for each in everything)
    for each in everything:
        each.close()
    (end,) = watch.events(Event.RUN_STOPPED)
    assert end["reason"] == "danaus stop"
    assert RunLock(watch.folder.path, WATCHDOG_LOCK).is_free


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_both_are_killed_and_the_run_is_adopted_by_hand_or_stopped_without_them(
    watch, train, capsys
):
    held = workers(watch, 2)
    dog = watchdog(watch)
    os.kill(dog, signal.SIGSTOP)  # it would be quicker
    assert wait_for_state(dog, "T")
    os.kill(controller(watch), signal.SIGKILL)
    os.kill(dog, signal.SIGKILL)
    watch.until("nobody", lambda: RunLock(watch.folder.path).is_free)
    watch.until_moved(2)
    train("--resume", str(watch.folder.path))
    adopted(watch, 1)
    assert workers(watch, 2) == held
    dog = watchdog(watch)
    os.kill(dog, signal.SIGSTOP)
    os.kill(controller(watch), signal.SIGKILL)
    os.kill(dog, signal.SIGKILL)
    watch.until("nobody", lambda: RunLock(watch.folder.path).is_free)
    everything = [Watched(pid) for pid in (watch.service_pid(), *held.values())]
    capsys.readouterr()
    assert danaus(["stop", str(watch.folder.path)]) == 0
    assert capsys.readouterr().out == "ended host0, host1, the quorum service\n"
    assert all(each.ends_within(10.0) for each in everything)
    for each in everything:
        each.close()
    assert danaus(["stop", str(watch.folder.path)]) == 0
    assert "nothing of" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_controller_that_ends_too_often_is_given_up_and_training_goes_on(watch, tmp_path):
    held = workers(watch, 2)
    # What it needs to begin is damaged, so that each new one ends at once.
    (watch.folder.control / "crew.json").write_text("{")
    os.kill(controller(watch), signal.SIGKILL)
    dog = Watched(watchdog(watch))
    (end,) = watch.until("it gives up", lambda: watch.events(Event.WATCHDOG_GAVE_UP), limit_s=100)
    assert dog.ends_within(10.0)
    dog.close()
    assert "go on by hand: danaus train --resume" in end["reason"]
    watch.until_moved(2)
    assert workers(watch, 2) == held
    (watch.folder.control / "crew.json").unlink()
