"""Actors on a system that has nothing of what Linux alone has, in all their processes.

What is taken away stands in ``tests.procs.elsewhere``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.procs.elsewhere import everywhere

from danaus.actor.found_process import FoundProcess
from danaus.actor.nursery import signals_in_use
from danaus.actor.procfs import ProcessStat, kill_exactly, read_stat, signal_exactly, split_status
from danaus.core import proc_root
from danaus.quorum.own_process import has_ended, own_name
from danaus.testing.hosts import wait_for_state

LIMIT_S = 60.0

PROGRAM = """
import asyncio, os, signal, sys
from danaus.actor.agent_messages import StacksTaken, TakeStacks
from danaus.actor.agent_talk import talk_to_agent
from danaus.actor.process_runtime import get_runtime
from danaus.wire.address import Address
from danaus.actor import (Actor, Restart, SupervisionError, concurrent_endpoint, endpoint,
    shutdown_context, this_host, this_proc)
from danaus.core import proc_root
from danaus.testing.hosts import Watched

assert not proc_root.is_there()

class Worker(Actor):
    def __init__(self, start):
        self.n = start

    @endpoint
    def add(self, k: int) -> int:
        self.n += k
        return self.n

    @endpoint
    def seen(self) -> tuple[bool, int]:
        return proc_root.is_there(), os.getpid()

    @endpoint
    def say(self, words: str) -> None:
        print(words, flush=True)

    @endpoint
    def leave(self, code: int) -> None:
        os._exit(code)

class Owner(Actor):
    @endpoint
    def end(self, number: int):
        procs = this_host().spawn_procs({"r": 2})
        workers = procs.spawn("worker", Worker, 0)
        procs.initialized.get(20)
        one = workers.slice(r=1)
        one.say.call_one("last words").get(20)
        if number:
            os.kill(list(procs.pids().values())[1], number)
        else:
            one.leave.broadcast(7)
        while (told := one.add.settled(1).get(20).item()).ok:
            pass
        alone = workers.slice(r=0).add.call_one(5).get(20)
        return told.error.signal, told.error.exit_code, list(told.error.log_tail), alone

    def __supervise__(self, failure):
        return True

procs = this_host().spawn_procs({"r": 2}, name="w")
workers = procs.spawn("worker", Worker, 10)
print(list(workers.add.call(1).get(20).values()))
print([there for there, _ in workers.seen.call().get(20).values()])

async def stacks():
    secret = get_runtime().connections.secret_of(procs.refs[0].job)
    async with talk_to_agent(Address.parse(procs.agent_addresses[0]), secret) as talk:
        talk.say(TakeStacks())
        return await talk.hear_of(StacksTaken)

found = asyncio.run(stacks()).processes
print([(each.why, "in _run" in each.text) for each in found])

owner = this_proc().spawn("owner", Owner)
for number in (signal.SIGKILL, 0):
    print(*owner.end.call_one(number).get(40))

kept = this_host().spawn_procs({"r": 1}, name="k").spawn("kept", Worker, 3, restart=Restart())
_, before = kept.seen.call_one().get(20)
os.kill(before, signal.SIGKILL)
while not (again := kept.seen.settled().get(20).item()).ok or again.value[1] == before:
    pass
print(kept.add.call_one(1).get(20))

import danaus.actor
danaus.actor.unhandled_fault_hook = lambda failure: None
bound = this_host().spawn_procs(name="b", proc_bind=[{"physcpubind": "0"}])
print(type(bound.initialized.exception(20)).__name__)

held = [Watched(pid) for pid in procs.pids().values()]
procs.stop().get(20)
print([each.ends_within(10.0) for each in held])
shutdown_context()
"""


DEATHS = """
import os, signal, subprocess, sys
import danaus.actor
from danaus.actor import Actor, SupervisionError, endpoint, shutdown_context
from danaus.job import LocalJob
from danaus.testing.hosts import Watched

class Worker(Actor):
    @endpoint
    def pids(self) -> tuple[int, int]:
        return os.getpid(), os.getppid()

    @endpoint
    def length(self, large: bytearray) -> int:
        return len(large)

    @endpoint
    def start(self) -> int:
        return subprocess.Popen(["sleep", "600"]).pid

danaus.actor.unhandled_fault_hook = lambda failure: None
job = LocalJob(1, run_dir=sys.argv[1]).apply()
host = job.state().hosts.slice(hosts=0)
workers = host.spawn_procs({"r": 2}, name="w").spawn("worker", Worker)
print(list(workers.length.call(bytearray(3 << 20)).get(20).values()))
((first, nursery), (second, _)) = workers.pids.call().get(20).values()

held = Watched(nursery)
held.signal(signal.SIGKILL)
print(held.ends_within(10.0))
later = host.spawn_procs(name="later").spawn("worker", Worker)
third, another = later.pids.call_one().get(20)
print(another != nursery, workers.slice(r=0).pids.call_one().get(20)[0] == first)
os.kill(second, signal.SIGKILL)
try:
    workers.slice(r=1).pids.call_one().get(20)
except SupervisionError as error:
    print(error.signal, "not reported" in str(error))

child = workers.slice(r=0).start.call_one().get(20)
held = [Watched(pid) for pid in (first, third, another, child)]
os.kill(third, signal.SIGSTOP)
os.kill(job.agent_pids()["host0"], signal.SIGKILL)
print([each.ends_within(10.0) for each in held])
job.kill()
shutdown_context()
"""


def run(tmp_path: Path, program: str, *words: str, **how: bool) -> subprocess.CompletedProcess[str]:
    """Run a program on another system."""
    (tmp_path / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, *(words or ("program.py", str(tmp_path / "run")))],
        cwd=tmp_path,
        env=everywhere(tmp_path, **how),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture(
    params=[{}, {"forks": True}, {"has_uvloop": False}],
    ids=["spawns", "forks", "spawns, plain asyncio"],
)
def how(request):
    return request.param


@pytest.mark.timeout(120)
def test_actors_are_spawned_called_killed_restarted_and_stopped(tmp_path, how):
    done = run(tmp_path, PROGRAM, **how)
    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        "[11, 11]",
        "[False, False]",
        "[('', True), ('', True)]",
        "SIGKILL None ['last words'] 5",
        "None 7 ['last words'] 5",
        "4",
        "SupervisionError",
        "[True, True]",
    ]


@pytest.mark.timeout(120)
def test_workers_outlive_their_nursery_and_nothing_outlives_its_agent(tmp_path, how):
    """Not what has lost its nursery, nor a stopped worker, nor what a worker has started."""
    done = run(tmp_path, DEATHS, **how)
    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        f"[{3 << 20}, {3 << 20}]",
        "True",
        "True True",
        "None True",
        "[True, True, True, True]",
    ]
    said = (tmp_path / "run" / "logs" / "agent-host0.log").read_text()
    assert "ready after" in said
    assert "threads" not in said, "a nursery has none"


@pytest.fixture
def child():
    """A child of this process, asleep."""
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


@pytest.fixture
def nothing_to_read(tmp_path, monkeypatch):
    monkeypatch.setattr(proc_root, "ROOT", tmp_path)


def test_a_child_is_known_by_being_one(child, nothing_to_read):
    assert read_stat(child.pid) == ProcessStat(child.pid, "?", os.getpid(), 0, None)
    os.kill(child.pid, signal.SIGSTOP)
    assert wait_for_state(child.pid, "T")
    assert signal_exactly(child.pid, 0, signal.SIGCONT)
    assert wait_for_state(child.pid, "?")
    assert kill_exactly(child.pid, 0)
    assert wait_for_state(child.pid, "Z")
    assert split_status(read_stat(child.pid).wait_status) == (None, "SIGKILL")
    assert not kill_exactly(child.pid, 0)
    assert child.wait() == -signal.SIGKILL, "it was looked at, not reaped"
    assert read_stat(child.pid) is None


def test_nobody_else_is_taken_for_one_that_was_meant(nothing_to_read):
    other = os.getppid()
    assert read_stat(other) == ProcessStat(other, "?", 0, 0, None)
    assert not signal_exactly(other, 0, signal.SIGCONT)
    assert FoundProcess.find(other, 0) is None


def test_a_process_knows_itself_all_the_same(nothing_to_read):
    assert not proc_root.is_there()
    with open(os.devnull) as file:
        assert file.fileno() in proc_root.own_descriptors()
        again = os.open(proc_root.descriptor_path(file.fileno()), os.O_RDONLY)
        assert os.path.samestat(os.fstat(again), os.fstat(file.fileno()))
        os.close(again)
    assert proc_root.num_own_threads() >= 1
    assert proc_root.free_bytes() > 1 << 20
    assert signal.SIGINT in signals_in_use()
    assert (own_name(), has_ended("boot namespace 1 1")) == ("", False)


@pytest.mark.timeout(120)
def test_programs_that_cannot_be_looked_for_are_said_to_be(tmp_path):
    done = run(tmp_path, "", "-m", "danaus.cli.main", "debug")
    assert done.returncode == 2
    assert "this system does not list its processes" in done.stderr
