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
from danaus.actor.made_of import LINE_BYTES
from danaus.job import LocalJob
from danaus.job.local import HOLDINGS

LIMIT_S = 20.0
SRC = Path(__file__).parents[2] / "src"

CONTROLLER = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from danaus.actor import Actor, Restart, SupervisionError, endpoint
from danaus.job import LocalJob

class Place(Actor):
    def __init__(self, ballast):
        self.ballast = ballast

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def weighs(self) -> int:
        return len(self.ballast)

    @endpoint
    def word(self) -> str:
        import danaus_brought
        return danaus_brought.WORD

def main():
    job = LocalJob(1, run_dir=sys.argv[2], detached=True).apply()
    procs = job.state().hosts.spawn_procs({"r": 2}, name="w")
    procs.sync_workspace(sys.argv[4]).get(20)
    places = procs.spawn("place", Place, bytes(int(sys.argv[3])), restart=Restart())
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

    @endpoint
    def weighs(self) -> int:
        raise NotImplementedError

    @endpoint
    def word(self) -> str:
        raise NotImplementedError


@pytest.fixture(params=[3, 5 * LINE_BYTES], ids=["small", "large"])
def ballast(request):
    """Of how many bytes what the actors are made with is."""
    return request.param


@pytest.fixture
def pids(tmp_path, ballast):
    """The pids of two workers, one of them in another's place, whose controller was killed."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "danaus_brought.py").write_text("WORD = 'brought'")
    words = [str(SRC), str(tmp_path), str(ballast), str(code)]
    command = [sys.executable, "-c", CONTROLLER, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as controller:
        assert controller.stdout is not None
        found = json.loads(controller.stdout.readline())
        controller.kill()
    return found


@pytest.fixture
def failures():
    """What nobody handled in this process."""
    heard = queue.Queue()
    vars(sys.modules["danaus.actor"])["unhandled_fault_hook"] = heard.put
    yield heard
    vars(sys.modules["danaus.actor"]).pop("unhandled_fault_hook", None)


def answers(places, rank: int, *, other_than: int) -> int:
    """Wait until another process answers for a rank; return its pid."""
    while True:
        outcome = places.slice(hosts=0, r=rank).pid.settled().get(LIMIT_S).item()
        if outcome.ok and outcome.value != other_than:
            return outcome.value


def test_a_policy_and_what_is_left_of_its_budget_are_adopted_too(pids, failures, tmp_path, ballast):
    """One restart of three was used before; one is used for who dies without a controller."""
    made = tmp_path / "control" / f"{HOLDINGS}.made"
    assert made.exists() == (ballast > LINE_BYTES)
    os.kill(pids[0], signal.SIGKILL)
    with LocalJob(1, run_dir=tmp_path, detached=True) as job:
        left = job.state().left["w"]
        assert "host0/w/1#1" in left.living
        procs, places = left.adopt(), left.adopt_actors("place", Place)
        answers(places, 0, other_than=pids[0])
        assert places.weighs.call().get(LIMIT_S).values() == (ballast, ballast)
        assert procs.process_ids == ("host0/w/0#1", "host0/w/1#1")
        assert places.word.call().get(LIMIT_S).values() == ("brought", "brought")
        os.kill(pids[1], signal.SIGKILL)
        third = answers(places, 1, other_than=pids[1])
        assert failures.empty()
        os.kill(third, signal.SIGKILL)
        failure = failures.get(timeout=LIMIT_S)
        assert (failure.mesh, failure.ranks, failure.signal) == ("w", (1,), "SIGKILL")
        assert "not started again: 4 failures in 60 s, 3 allowed" in failure.reason
    assert not made.exists(), "it ends with the mesh"
