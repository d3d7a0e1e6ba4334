"""H-5, T-7: a disk without room stops nothing; what could not be written is said afterwards."""

import os
import subprocess

import pytest

from danaus.app.events import Event
from danaus.core import journal
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Observer
from danaus.testing.faults import Pace
from danaus.testing.runs import Shape, running, small_run

DISK_BYTES = 16 << 20
STEPS = 80


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, small enough to be filled."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "danaus-test", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


class Elsewhere:
    """Makes an observer that writes each committed step where there is room."""

    def __init__(self, path):
        self.path = path

    def __call__(self, work):
        return _Noted(self.path)


class _Noted(Observer):
    def __init__(self, path):
        self._journal = journal.Journal(path)

    def committed(self, line, result):
        self._journal.record("step", step=line.step, replicas=len(line.leaves), pid=os.getpid())


def fill(disk):
    """Leave not a byte; return what takes the room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        block = bytes(1 << 16)
        try:
            while True:
                file.write(block)
        except OSError:
            pass
        try:
            while True:
                file.write(b"\0")
        except OSError:
            pass
    assert os.statvfs(disk).f_bavail == 0
    return filler


@pytest.mark.timeout(200)
def test_a_run_goes_on_without_room_on_its_disk_whoever_dies_meanwhile(
    small_disk, tmp_path, undisturbed
):
    noted = tmp_path / "noted.jsonl"
    pace = Pace(0.3, until=tmp_path / "fast")
    observers = {f"replica-{n}": (Elsewhere(noted), pace) for n in range(3)}
    shape = Shape(replicas=3, leaves=5, steps=STEPS)
    run = small_run(small_disk / "run", shape, observers=observers)

    def noted_lines():
        return journal.read(noted)

    def newest():
        return max((line["step"] for line in noted_lines()), default=0)

    with running(run) as going:
        watch = going.watch

        def pid():
            replica = going.launched.status().replicas.get("replica-1")
            return replica.pids[0] if replica and replica.pids else 0

        watch.until(
            "three members", lambda: noted_lines()[-1:] and noted_lines()[-1]["replicas"] == 3, 60
        )
        watch.until("a checkpoint", lambda: newest() > 4)
        filler = fill(small_disk)
        full_at = newest()
        watch.until("steps without room", lambda: newest() >= full_at + 5)
        victim = pid()
        os.kill(victim, 9)
        watch.until("another in its place", lambda: pid() not in (victim, 0))
        watch.until("it to take part", lambda: any(line["pid"] == pid() for line in noted_lines()))
        os.kill(going.launched.status().service_pid, 9)
        watch.until("a new service", lambda: going.launched.status().service_pid)
        watch.until("steps without room", lambda: newest() >= full_at + 15)
        assert os.statvfs(small_disk).f_bavail == 0
        filler.unlink()
        pace.until.touch()
        result = going.result(60)
    assert result.sha256 == undisturbed(run)
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
    assert told.num_steps == STEPS
    lines = journal.read(run.folder.journal_path)
    assert sum(line.get("lost_before", 0) for line in lines) > 0, "it says what it could not say"
    assert not watch.events(Event.RUN_RESUMED)
