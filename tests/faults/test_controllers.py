"""The controller is killed: attached hosts end with it, detached ones go on (P-4)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from danaus.actor.agent_messages import TO_AGENT, ShutDown
from danaus.actor.pid_registry import PidRegistry
from danaus.actor.procfs import children_of
from danaus.core.clock import Deadline
from danaus.testing.hosts import Watched, wait_for_state
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import open_session

LIMIT_S = 10.0  # P-4
SRC = Path(__file__).parents[2] / "src"

CONTROLLER = """
import json, os, subprocess, sys, threading
sys.path.insert(0, sys.argv[1])
from danaus.actor import Actor, endpoint
from danaus.job import LocalJob

class Sleeper(Actor):
    @endpoint
    def sleep(self) -> None:
        threading.Event().wait()

    @endpoint
    def child(self) -> int:
        return subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL).pid

if __name__ == "__main__":
    job = LocalJob(2, run_dir=sys.argv[2], detached=sys.argv[3] == "detached").apply()
    procs = job.state().hosts.spawn_procs({"r": 2}, name="w")
    sleepers = procs.spawn("sleeper", Sleeper)
    children = sleepers.child.call().get(20)
    sleepers.sleep.broadcast()
    address = procs.agent_addresses[0]
    pids = {**procs.pids(), **job.agent_pids(), **{f"child{p.rank}": c for p, c in children}}
    print(json.dumps({"pids": pids, "address": address}), flush=True)
    if sys.argv[4] == "exit":
        sys.exit(0)
    if sys.argv[4] == "fork" and os.fork() == 0:  # a child that holds all our descriptors
        threading.Event().wait(20)
        os._exit(0)
    threading.Event().wait()
"""


@pytest.fixture
def controller(tmp_path):
    started: list[subprocess.Popen[str]] = []

    def start(mode: str, end: str = "wait"):
        command = [sys.executable, "-c", CONTROLLER, str(SRC), str(tmp_path), mode, end]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def watch():
    watched: list[Watched] = []

    def all_of(pids) -> list[Watched]:
        watched.extend(Watched(pid) for pid in pids)
        return watched

    yield all_of
    for each in watched:
        each.close()


def nurseries(run_dir: Path) -> list[int]:
    folders = (run_dir / "control" / "agents").iterdir()
    return [PidRegistry(folder).read()["nursery"][0] for folder in folders]


def test_everything_ends_with_a_killed_controller_even_what_is_stopped(controller, tmp_path, watch):
    process, said = controller("attached")
    everything = watch([*said["pids"].values(), *nurseries(tmp_path)])
    for name in ("host0/w/0#0", "host1"):  # a worker, and the agent of the other host
        os.kill(said["pids"][name], signal.SIGSTOP)
        assert wait_for_state(said["pids"][name], "T")
    process.kill()
    assert all(each.ends_within(LIMIT_S) for each in everything)


def test_a_child_that_the_controller_forked_keeps_nothing_alive(controller, watch):
    process, said = controller("attached", "fork")
    everything = watch(said["pids"].values())
    (child,) = watch_children(process.pid, said["pids"].values())
    process.kill()
    assert all(each.ends_within(LIMIT_S) for each in everything)
    os.kill(child, signal.SIGKILL)


def watch_children(pid: int, known) -> list[int]:
    deadline = Deadline.after(LIMIT_S)
    while not deadline.passed:
        if found := [child for child in children_of(pid) if child not in set(known)]:
            return found
        os.sched_yield()
    return []


def test_everything_ends_with_a_controller_that_ends_by_itself(controller, watch):
    process, said = controller("attached", "exit")
    assert process.wait(LIMIT_S) == 0
    # Some may be gone already: then there is nothing left to watch.
    alive = [pid for pid in said["pids"].values() if Path(f"/proc/{pid}").exists()]
    assert all(each.ends_within(LIMIT_S) for each in watch(alive))


def test_a_stopped_controller_stops_nobody(controller, watch):
    process, said = controller("attached")
    process.send_signal(signal.SIGSTOP)
    assert wait_for_state(process.pid, "T")
    assert not any(each.ends_within(0.2) for each in watch(said["pids"].values()))


def test_detached_workers_go_on_without_their_controller(controller, tmp_path, watch):
    process, said = controller("detached")
    everything = watch(said["pids"].values())
    process.kill()
    process.wait()
    assert not any(each.ends_within(0.1) for each in everything)

    async def shut_down(host: str) -> None:
        address = Address.parse(said["address"].replace("host0", host))
        session = await open_session(address, Secret.load(tmp_path / "secret"))
        session.send([TO_AGENT.encode(ShutDown(0.1))])
        await session.closed

    asyncio.run(shut_down("host0"))
    asyncio.run(shut_down("host1"))
    assert all(each.ends_within(LIMIT_S) for each in everything)
