"""Programs as users of PyTorch Monarch write them run with another import, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.procs.waiting import machines

LIMIT_S = 40.0
ROOT = Path(__file__).parents[3]

PING_PONG = """
import asyncio
from monarch.actor import Actor, Channel, current_rank, current_size, endpoint, send, this_host

class Player(Actor):
    def __init__(self, name):
        self.name, self.rank = name, current_rank().rank

    @endpoint
    async def meet(self, others):
        self.partner = others.slice(**current_rank())

    @endpoint
    async def serve(self, ball):
        self.logger.info("serving")
        return await self.partner.take.call_one(f"{self.name}{self.rank} {ball}")

    @endpoint
    async def take(self, ball):
        return f"{ball} to {self.name}{self.rank} of {current_size()['gpus']}"

async def main():
    async with this_host().spawn_procs(per_host={"gpus": 2}) as procs:
        ping, pong = procs.spawn("ping", Player, "ping"), procs.spawn("pong", Player, "pong")
        await asyncio.gather(ping.meet.call(pong), pong.meet.call(ping))
        said = await ping.serve.call("a")
        print(list(said.values()), said.item(gpus=1), said.flatten("r").slice(r=0).item())
        port, receiver = Channel.open_ranked()
        send(pong.serve, ("b",), {}, port=port)
        print(sorted([await receiver.recv(), await receiver.recv()]))
asyncio.run(main())
"""

TRAINER = """
import operator
from monarch.actor import (Accumulator, Actor, Extent, ProcMesh, as_endpoint, context,
    current_rank, endpoint, get_or_spawn_controller, shutdown_context, this_host, this_proc)

class Registry(Actor):
    def __init__(self):
        self.seen = []

    @endpoint
    def add(self, name):
        self.seen.append(name)
        return len(self.seen)

class Loader(Actor):
    def __init__(self):
        self.n = 0

    @endpoint
    def batch(self):
        self.n += 1
        return self.n + current_rank().rank

    def peek(self, k):
        return self.n + k

class Trainer(Actor):
    def __init__(self, loaders, world):
        me = context().actor_instance
        assert me.rank.rank == current_rank().rank, me.name == "trainer"
        assert me.class_name.endswith(".Trainer"), me.class_name
        self.loader, self.world = loaders.slice(**me.rank), world

    @endpoint
    def step(self):
        get_or_spawn_controller("registry", Registry).get().add.call_one("t").get()
        return self.loader.batch.call_one().get() * self.world

    @endpoint
    def fail(self, k):
        raise ValueError(k)

procs: ProcMesh = this_host().spawn_procs(per_host={"gpus": 2})
loaders: Loader = procs.spawn("loaders", Loader)
trainers = procs.spawn("trainers", Trainer, loaders, world=procs.size("gpus"))
assert trainers.extent == Extent(["hosts", "gpus"], [1, 2])
loaders.batch.broadcast()
print([value for _, value in trainers.step.call().get().items()])
print(Accumulator(loaders.batch, 0, operator.add).accumulate().get())
print(as_endpoint(loaders.slice(gpus=0).peek).call_one(10).get())
print(get_or_spawn_controller("registry", Registry).get().add.call_one("main").get())
try:
    trainers.slice(gpus=1).fail.call_one(3).get()
except Exception as error:
    print(type(error).__name__, repr(error.__cause__))
mine = this_proc().spawn("mine", Loader)
print(mine.batch.call_one().get(timeout=20.0))
procs.logging_option(stream_to_client=True, aggregate_window_sec=1).get()
procs.stop().get()
shutdown_context().get()
"""

SUPERVISED = """
import os, queue
import monarch.actor
from monarch.actor import (Actor, MeshFailure, SupervisionError, concurrent_endpoint, endpoint,
    shutdown_context, this_host, this_proc)

class Worker(Actor):
    @endpoint
    def work(self, k):
        if k < 0:
            os._exit(7)
        return k

class Supervisor(Actor):
    def __init__(self):
        self.failures = queue.Queue()

    @endpoint
    def start(self, name):
        self.procs = this_host().spawn_procs(per_host={"gpus": 2}, name=name)
        return self.procs.spawn(name, Worker)

    @endpoint
    def next_failure(self):
        failure = self.failures.get(timeout=20)
        return failure.mesh_name, dict(failure.coordinate), failure.report().splitlines()[0]

    def __supervise__(self, failure: MeshFailure):
        self.failures.put(failure)
        return failure.mesh_name == "mended"

heard = queue.Queue()
monarch.actor.unhandled_fault_hook = heard.put
supervisor = this_proc().spawn("supervisor", Supervisor)
for name in ("mended", "left"):
    workers = supervisor.start.call_one(name).get()
    try:
        workers.slice(gpus=1).work.call_one(-1).get()
    except SupervisionError as error:
        print(error)
    print(*supervisor.next_failure.call_one().get())
    print(workers.slice(gpus=0).work.call_one(5).get())
print("unhandled:", heard.get(timeout=20).mesh_name, heard.empty())
shutdown_context().get()
"""

HOSTS = """
import asyncio, sys
from monarch.actor import Actor, HostMesh, attach_to_workers, current_rank, endpoint

class Ranked(Actor):
    @endpoint
    async def rank(self):
        return current_rank().rank

    async def __cleanup__(self, exc):
        print("cleaned up", exc)

async def main(secret, *workers):
    hosts: HostMesh = attach_to_workers(name="w", workers=workers, secret=secret)
    await hosts.initialized
    async with hosts:
        procs = hosts.spawn_procs(per_host={"gpus": 2})
        await procs.initialized
        ranked = procs.spawn("ranked", Ranked)
        print([rank async for rank in arrived(ranked)], hosts.extent)

async def arrived(ranked):
    for k in range(4):
        at = {"hosts": k // 2, "gpus": k % 2}
        yield await ranked.slice(**at).rank.call_one()

asyncio.run(main(*sys.argv[1:]))
"""


def run(program: str, tmp_path: Path, *args: str) -> list[str]:
    """Run a program with its import changed; return the lines that it prints."""
    (tmp_path / "program.py").write_text(program.replace("monarch.actor", "danaus.actor"))
    done = subprocess.run(
        [sys.executable, "program.py", *args],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def test_actors_that_know_each_other_by_their_place(tmp_path):
    both = ["ping0 a to pong0 of 2", "ping1 a to pong1 of 2"]
    said, ranked, *_ = run(PING_PONG, tmp_path)
    assert said == f"{both} {both[1]} {both[0]}"
    assert ranked == str([(0, "pong0 b to ping0 of 2"), (1, "pong1 b to ping1 of 2")])


def test_trainers_with_loaders_a_registry_and_what_is_combined(tmp_path):
    assert run(TRAINER, tmp_path) == [
        "[4, 6]",  # each has had a batch before, two of them count
        "7",
        "13",
        "3",
        "ActorError ValueError(3)",
        "1",
    ]


def test_a_tree_of_supervision(tmp_path):
    why = "is gone: its process ended with exit code 7"
    lines = run(SUPERVISED, tmp_path)
    for name, (error, failure, went_on) in {"mended": lines[:3], "left": lines[3:6]}.items():
        assert error == f"{name}[hosts=0, rank 1 of the mesh] {why}"
        assert failure.startswith(f"{name} {{'hosts': 0, 'gpus': 1}} {name}[hosts=0 gpus=1] failed")
        assert went_on == "5"
    assert lines[6:] == ["unhandled: left True"]


WAITS = """
import sys
from danaus.actor import run_worker_loop_forever
run_worker_loop_forever(address=sys.argv[1], secret=sys.argv[2])
"""


@pytest.mark.timeout(60)
def test_hosts_that_wait_in_a_loop_and_are_attached_to_by_url(tmp_path):
    with machines(tmp_path, 1) as (one,):
        other = f"ipc://{tmp_path}/w"
        command = [sys.executable, "-uc", WAITS, other, str(one.secret)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as host:
            try:
                assert "waits to be joined at unix:" in host.stdout.readline()
                urls = [one.address.replace("tcp:", "tcp://"), other]
                ranks, *_ = run(HOSTS, tmp_path, str(one.secret), *urls)
            finally:
                host.send_signal(signal.SIGINT)
        assert (ranks, host.returncode) == ("[0, 1, 2, 3] hosts=2", 0)
