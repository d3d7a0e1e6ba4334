"""What was started again by a policy is what a later controller finds (A-9, A-12)."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from danaus.actor import Actor, endpoint
from danaus.job import LocalJob

LIMIT_S = 20.0
SRC = Path(__file__).parents[2] / "src"

CONTROLLER = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from danaus.actor import Actor, Restart, SupervisionError, endpoint
from danaus.job import LocalJob

class Place(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

def main():
    job = LocalJob(1, run_dir=sys.argv[2], detached=True).apply()
    procs = job.state().hosts.spawn_procs({"r": 2}, name="w")
    places = procs.spawn("place", Place, restart=Restart())
    one = places.slice(hosts=0, r=1)
    before = one.pid.call_one().get(20)
    os.kill(before, signal.SIGKILL)
    while True:
        outcome = one.pid.settled().get(20).item()
        if outcome.ok and outcome.value != before:
            break
    print(json.dumps(list(places.pid.call().get(20).values())), flush=True)
    sys.stdin.read()

main()
"""


class Place(Actor):
    """As the adopting side knows it."""

    @endpoint
    def pid(self) -> int:
        raise NotImplementedError


@pytest.fixture
def pids(tmp_path):
    """The pids of two workers, one of them in another's place, whose controller was killed."""
    command = [sys.executable, "-c", CONTROLLER, str(SRC), str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as controller:
        assert controller.stdout is not None
        found = json.loads(controller.stdout.readline())
        controller.kill()
    return found


@pytest.fixture
def job(pids, tmp_path):
    with LocalJob(1, run_dir=tmp_path, detached=True) as job:
        yield job


@pytest.fixture
def failures():
    """What nobody handled in this process."""
    heard = queue.Queue()
    vars(sys.modules["danaus.actor"])["unhandled_fault_hook"] = heard.put
    yield heard
    vars(sys.modules["danaus.actor"]).pop("unhandled_fault_hook", None)


def test_who_has_another_s_place_is_adopted_and_watched_over(pids, failures, job):
    left = job.state().left["w"]
    assert left.living == {"host0/w/0#0", "host0/w/1#1"}
    procs, places = left.adopt(), left.adopt_actors("place", Place)
    assert places.pid.call().get(LIMIT_S).values() == tuple(pids)
    assert procs.pids() == {"host0/w/0#0": pids[0], "host0/w/1#1": pids[1]}
    os.kill(pids[1], signal.SIGKILL)
    failure = failures.get(timeout=LIMIT_S)
    assert (failure.mesh, failure.ranks, failure.signal) == ("w", (1,), "SIGKILL")
