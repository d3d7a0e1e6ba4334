"""A-12: a controller started again with the same run folder adopts what an earlier one has left."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from danaus.actor.adopting import note
from danaus.actor.endpoints import Actor, endpoint
from danaus.actor.fault_hook import REPLACED_CODE
from danaus.actor.restart import Restart
from danaus.core.errors import ConfigError, SupervisionError
from danaus.job.local import LocalJob
from danaus.testing.hosts import Watched, wait_for_state

LIMIT_S = 20.0
SRC = Path(__file__).parents[2] / "src"

CONTROLLER = """
import json, sys, threading, time
sys.path.insert(0, sys.argv[1])
from danaus.actor import Actor, Restart, endpoint
from danaus.actor.adopting import note
from danaus.job import LocalJob

class Counter(Actor):
    def __init__(self):
        self.value = 0

    @endpoint
    def add(self, n: int) -> int:
        self.value += n
        return self.value

    @endpoint
    def fail_once_gone(self, armed: str) -> None:
        from pathlib import Path
        from danaus.actor.process_runtime import context, get_runtime
        owner = get_runtime()._hosting.get(context().actor_key).owner
        Path(armed).touch()
        while not owner.is_away:
            threading.Event().wait(0.01)
        raise ValueError("nobody heard this")

def main():
    import os
    job = LocalJob(2, run_dir=sys.argv[2], detached=True).apply()
    left = job.state().left
    if "w" in left:
        procs = left["w"].adopt()
        counters = left["w"].adopt_actors("counter", Counter)
    else:
        procs = job.state().hosts.spawn_procs({"r": 2}, name="w")
        counters = procs.spawn("counter", Counter)
        note(procs, colour="blue")
    counters.initialized.get(20)
    value = counters.slice(hosts=0, r=0).add.call_one(1).get(20)
    budget = job.takeover.budget("b", Restart(intensity=2))
    budget.decide((0,), 1, time.monotonic())
    print(json.dumps({"pids": procs.pids(), "agents": job.agent_pids(), "value": value}),
          flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            procs.kill().get(20)
        elif line.strip() == "start":
            job.state().hosts.spawn_procs(name="late").initialized.get(20)
        elif line.strip() == "fail":
            armed = os.path.join(sys.argv[2], "armed")
            counters.slice(hosts=0, r=0).fail_once_gone.broadcast(armed)
            while not os.path.exists(armed):
                threading.Event().wait(0.01)
        print("done", flush=True)

if __name__ == "__main__":
    main()
"""


class Counter(Actor):
    """As the adopting side knows it."""

    @endpoint
    def add(self, n: int) -> int:
        raise NotImplementedError


class Controller:
    """A controller of a process of its own."""

    def __init__(self, run_dir: Path) -> None:
        command = [sys.executable, "-c", CONTROLLER, str(SRC), str(run_dir)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.said = json.loads(self.process.stdout.readline())
        self.pids = self.said["pids"]

    def ask(self, word: str, *, answered: bool = True) -> None:
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        if answered:
            assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


@pytest.fixture
def controller(tmp_path):
    started = []

    def start() -> Controller:
        started.append(Controller(tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def failures():
    """What nobody handled in this process."""
    heard = queue.Queue()
    vars(sys.modules["danaus.actor"])["unhandled_fault_hook"] = heard.put
    yield heard
    vars(sys.modules["danaus.actor"]).pop("unhandled_fault_hook", None)


@pytest.fixture
def again(tmp_path, failures):
    """Apply the job again, from this process; it is ended with the test."""
    jobs = []

    def apply() -> LocalJob:
        jobs.append(LocalJob(2, run_dir=tmp_path, detached=True))
        return jobs[-1].apply()

    yield apply
    for job in jobs:
        job.kill()


@pytest.fixture
def watched():
    found = []

    def watch(pid: int) -> Watched:
        found.append(Watched(pid))
        return found[-1]

    yield watch
    for each in found:
        each.close()


def adopted(job):
    left = job.state().left["w"]
    procs, counters = left.adopt(), left.adopt_actors("counter", Counter)
    return procs, counters


def test_a_new_controller_has_the_same_meshes_and_supervises_on(
    controller, again, failures, watched
):
    first = controller()
    first.kill()
    job = again()
    assert job.agent_pids() == first.said["agents"], "hosts are adopted, not started"
    left = job.state().left["w"]
    assert left.living == set(first.pids)
    assert dict(left.notes) == {"colour": "blue"}
    procs, counters = adopted(job)
    procs.initialized.get(LIMIT_S)
    counters.initialized.get(LIMIT_S)
    assert procs.pids() == first.pids
    assert procs.sizes == {"hosts": 2, "r": 2}
    assert counters.slice(hosts=0, r=0).add.call_one(1).get(LIMIT_S) == 2, "it has lost nothing"
    assert [v for _, v in counters.add.call(1).get(LIMIT_S)] == [3, 1, 1, 1]
    with pytest.raises(ConfigError, match="was started before"):
        left.adopt()
    with pytest.raises(ConfigError, match="no actors"):
        left.adopt_actors("others", Counter)
    # A worker that dies now is told of to the new owner, and calls to it end.
    victim = watched(first.pids["host1/w/3#0"])
    victim.signal(signal.SIGKILL)
    failure = failures.get(timeout=LIMIT_S)
    assert (failure.mesh, failure.kind, failure.signal) == ("w", "signal", "SIGKILL")
    assert failure.ranks == (3,)
    with pytest.raises(SupervisionError):
        counters.slice(hosts=1, r=1).add.call_one(1).get(LIMIT_S)
    # What is started now is known to the next one too.
    more = job.state().hosts.spawn_procs(name="more")
    more.initialized.get(LIMIT_S)
    others = [watched(pid) for pid in [*procs.pids().values(), *more.pids().values()][:3]]
    procs.kill().get(LIMIT_S)
    assert all(each.ends_within(LIMIT_S) for each in others[:3])


def test_deaths_while_there_was_no_controller_are_told_at_once(
    controller, again, failures, watched
):
    first = controller()
    first.kill()
    victim = watched(first.pids["host0/w/1#0"])
    victim.signal(signal.SIGKILL)
    assert victim.ends_within(LIMIT_S)
    agent = watched(first.said["agents"]["host1"])
    lost = [watched(first.pids[f"host1/w/{rank}#0"]) for rank in (2, 3)]
    agent.signal(signal.SIGKILL)
    assert all(each.ends_within(LIMIT_S) for each in lost)
    job = again()
    assert job.state().left["w"].living == {"host0/w/0#0"}
    assert job.agent_pids()["host0"] == first.said["agents"]["host0"]
    assert job.agent_pids()["host1"] != first.said["agents"]["host1"]
    procs, counters = adopted(job)
    heard = {each.ranks: each for each in (failures.get(timeout=LIMIT_S) for _ in range(2))}
    assert heard[(1,)].signal == "SIGKILL", "its agent has remembered how it ended"
    assert "its host was lost while there was no controller" in heard[(2, 3)].reason
    assert counters.slice(hosts=0, r=0).add.call_one(1).get(LIMIT_S) == 2
    with pytest.raises(SupervisionError):
        counters.slice(hosts=1, r=0).add.call_one(1).get(LIMIT_S)
    with pytest.raises(SupervisionError):
        procs.initialized.get(LIMIT_S)
    fresh = job.state().hosts.slice(hosts=1).spawn_procs(name="w", incarnation=1)
    fresh.initialized.get(LIMIT_S)


def test_controllers_are_killed_one_after_the_other(controller, again):
    first = controller()
    first.kill()
    second = controller()
    assert second.pids == first.pids
    assert second.said["value"] == 2
    second.kill()
    job = again()
    procs, counters = adopted(job)
    assert counters.slice(hosts=0, r=0).add.call_one(1).get(LIMIT_S) == 3
    procs.initialized.get(LIMIT_S)  # the call heard of one host only
    assert procs.pids() == first.pids
    assert job.takeover.generation == 3
    budget = job.takeover.budget("b", Restart(intensity=2))
    assert budget.total == 2
    assert not budget.decide((0,), 1, budget._past[-1]).restart, "both failures still count"


@pytest.mark.parametrize("order", ["kill", "start"])
def test_a_stopped_controller_that_wakes_up_is_told_and_disturbs_nobody(
    controller, again, watched, order
):
    first = controller()
    first.process.send_signal(signal.SIGSTOP)
    assert wait_for_state(first.process.pid, "T")
    job = again()
    procs, counters = adopted(job)
    counters.initialized.get(LIMIT_S)
    workers = [watched(pid) for pid in first.pids.values()]
    first.ask(order, answered=False)
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(LIMIT_S) == REPLACED_CODE
    assert "this controller was replaced by a later one" in first.process.stderr.read()
    assert not any(each.ends_within(0.0) for each in workers)
    assert counters.slice(hosts=0, r=0).add.call_one(1).get(LIMIT_S) == 2
    assert procs.pids() == first.pids
    late = {name for host in ("host0", "host1") for name in registered(job, host)}
    assert not [name for name in late if "/late/" in name]


def registered(job, host):
    folder = job.takeover.log.path.parent / "agents" / host
    return json.loads((folder / "pids.json").read_text())


def test_what_an_actor_could_tell_nobody_is_told_to_the_next_owner(controller, again, failures):
    first = controller()
    first.ask("fail")
    first.kill()
    job = again()
    adopted(job)
    failure = failures.get(timeout=LIMIT_S)
    assert (failure.mesh, failure.kind) == ("counter", "exception")
    assert "nobody heard this" in failure.reason


def test_what_nobody_adopts_is_known_to_the_next_and_a_job_that_is_over_leaves_nothing(
    controller, again, tmp_path, watched
):
    first = controller()
    workers = [watched(pid) for pid in first.pids.values()]
    first.kill()
    job = again()
    note(job.state().left["w"].adopt(), colour="red")
    job.kill()
    assert all(each.ends_within(LIMIT_S) for each in workers)
    job = again()
    assert not job.state().left
    assert set(job.agent_pids()) == {"host0", "host1"}
