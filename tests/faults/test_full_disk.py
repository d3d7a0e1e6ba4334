"""H-5, T-7: a disk without room stops nothing; what could not be written is said afterwards."""

import os

import pytest

from danaus.actor.holdings import HostHeld
from danaus.actor.holdings_log import HoldingsLog, read_holdings
from danaus.actor.pid_registry import PidRegistry
from danaus.actor.process_runtime import context
from danaus.app.chaos_inside import make_inside
from danaus.app.chaos_kernel import MOST_DISK_BYTES, fill, fill_disk
from danaus.app.chaos_spec import read
from danaus.app.events import Event
from danaus.core import journal
from danaus.core.errors import ConfigError
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Observer
from danaus.testing.faults import Pace
from danaus.testing.runs import Shape, finish, running, small_run
from danaus.testing.watching import RunWatch

STEPS = 80


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
        room = os.statvfs(context().proc.run_dir).f_bavail
        self._journal.record(
            "step", step=line.step, replicas=len(line.leaves), pid=os.getpid(), room=room
        )


@pytest.mark.slow
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
        filler = small_disk / "filler"
        fill(filler)
        assert os.statvfs(small_disk).f_bavail == 0
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


@pytest.mark.timeout(120)
def test_a_disk_that_is_filled_on_purpose_has_room_again(small_disk, tmp_path, undisturbed):
    noted = tmp_path / "noted.jsonl"
    full = make_inside(read("disk_full:replica=0,at_step=5,for=1s"))
    pace = Pace(0.2, until=tmp_path / "never")
    observers = {"replica-0": (full, pace), "replica-1": (Elsewhere(noted),)}
    run = small_run(small_disk / "run", Shape(replicas=2, steps=16), observers=observers)
    assert finish(run).sha256 == undisturbed(run)
    watch = RunWatch(run.folder)
    (strike,) = watch.strikes()
    assert (strike["target"], strike["kind"]) == ("replica-0", "disk_full")
    assert not watch.events(Event.PROCESS_EXITED) + watch.events(Event.REPLICA_FAILED)
    rooms = [line["room"] for line in journal.read(noted)]
    # Whoever was writing when it was filled deletes what has no end, so a little is free.
    assert min(rooms) < rooms[0] // 10 < rooms[-1]
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
    assert told.num_steps == 16


def test_who_starts_while_the_disk_is_full_is_found_by_the_next_agent(small_disk):
    registry = PidRegistry(small_disk)
    registry.add("agent", os.getpid(), 1)
    fill(small_disk / "filler")
    registry.add("nursery", os.getpid(), 2)
    registry.drop("agent")
    assert PidRegistry(small_disk).read() == {"nursery": (os.getpid(), 2)}


def test_a_disk_that_others_use_is_never_filled(tmp_path):
    room = os.statvfs(tmp_path)
    if room.f_blocks * room.f_frsize <= MOST_DISK_BYTES:
        pytest.skip("the temporary folder lies on a small disk")
    with pytest.raises(ConfigError, match="which is not filled: a file system of its own"):
        fill_disk(tmp_path, 1.0, lambda: None)
    assert not list(tmp_path.iterdir())


def test_what_a_controller_holds_is_written_down_once_there_is_room_again(small_disk):
    said = []
    log = HoldingsLog(small_disk / "control" / "holdings.jsonl")
    log.on_trouble = said.append
    log.begin("controller/1.a/0#0", 1, 1)
    fill(small_disk / "filler")
    for n in range(200):  # more than the file's last block holds
        log.record(HostHeld(f"host{n}", "unix:/a"))
    assert log.trouble
    assert not log.retry()
    on_disk = read_holdings(log.path)
    assert on_disk.generation == 1, "what was written before is whole"
    assert len(on_disk.hosts) < 200
    (small_disk / "filler").unlink()
    assert log.retry()
    assert read_holdings(log.path) == log.state
    assert len(said) == 2
    assert (bool(said[0]), said[1]) == (True, "")
    log.close()
