"""More programs as users of PyTorch Monarch write them: the import is changed, and nothing else.

What each prints here was seen to be what it prints there (0.7.0).
"""

from __future__ import annotations

from tests.procs.actor.test_ported import run

PARTS = """
import asyncio
from monarch.actor import (Actor, ActorError, Channel, Extent, context, current_rank, endpoint,
    returns_future, send, shutdown_context, this_host)

class Shard(Actor):
    def __init__(self, weight):
        me = context().actor_instance
        assert dict(me.rank) == dict(context().message_rank) == dict(current_rank())
        self.weight = weight * (me.rank.rank + 1)

    @endpoint(instrument=True)
    def scaled(self, k):
        at, me = context().message_rank, context().actor_instance.rank
        return at.rank, at.extent["gpus"], me["hosts"], self.weight * k

    @endpoint(propagate=lambda k: k)
    def fail(self, k):
        raise ValueError(k)

    @endpoint
    def helper(self):
        return context().actor_instance.proc.spawn("helper", Helper)

class Helper(Actor):
    @endpoint
    def made_by(self):
        me = context().actor_instance
        there = me.proc.spawn("beside", Helper) if me.name == "helper" else None
        if there is not None:
            return me.creator.name, me.creator.rank["gpus"], there.made_by.call_one().get()
        return me.creator.name, me.class_name.rpartition(".")[2]

@returns_future
async def total(shards, k):
    return sum([value for _, _, _, value in (await shards.scaled.call(k)).values()])

procs = this_host().spawn_procs(per_host={"hosts": 2, "gpus": 2})
assert procs.extent == Extent(["hosts", "gpus"], [2, 2])
assert dict(procs.extent) == procs.sizes == {"hosts": 2, "gpus": 2}
assert procs.extent["gpus"] == 2 and list(procs.extent) == ["hosts", "gpus"]
shards = procs.spawn("shards", Shard, 10)
print(list(shards.scaled.call(1).get().values()))
print(list(shards.slice(hosts=1).scaled.call(1).get().values()))
print(list(shards.slice(gpus=slice(1, 2)).scaled.call(1).get().values()))
port, receiver = Channel.open()
send(shards.slice(hosts=1, gpus=slice(0, 1)).scaled, (2,), {}, port, "choose")
print(receiver.recv().get(timeout=20))
print(total(shards, 3).get())
try:
    shards.slice(hosts=0, gpus=0).fail.call_one("no").get()
except ActorError as error:
    print("raised", repr(error.exception))
helper = shards.slice(hosts=0, gpus=1).helper.call_one().get()
print(helper.made_by.call_one().get())
assert len(shards.slice(hosts=0, gpus=1).extent) == 0
asyncio.run(procs.logging_option(stream_to_client=True, aggregate_window_sec=1))
procs.stop("all shards are summed").get()
shutdown_context(host_timeout=2.0).get()
"""

LEARNING = """
import asyncio, random
from monarch.actor import Accumulator, Actor, Port, context, current_rank, endpoint, this_host

class Buffer(Actor):
    def __init__(self, capacity):
        self.items, self.capacity, self.more = [], capacity, asyncio.Event()

    @endpoint
    async def put(self, item):
        self.items = [*self.items, item][-self.capacity:]
        self.more.set()

    @endpoint(explicit_response_port=True)
    async def sample(self, port: Port, size):
        async def answer():
            while len(self.items) < size:
                self.more.clear()
                await self.more.wait()
            port.send(sorted(self.items)[:size])
        self.answering = asyncio.create_task(answer())

class Generator(Actor):
    def __init__(self, buffer):
        self.buffer, self.weights = buffer, 0

    @endpoint
    async def update(self, weights):
        self.weights = weights
        return current_rank()["gpus"]

    @endpoint
    async def generate(self, k):
        me = context().actor_instance
        await self.buffer.put.call_one((self.weights, k, me.rank["gpus"]))

class Learner(Actor):
    def __init__(self, buffer, generators):
        self.buffer, self.generators, self.weights = buffer, generators, 0

    @endpoint
    async def step(self):
        batch = await self.buffer.sample.call_one(2)
        self.weights += sum(k for _, k, _ in batch) + 1
        told = await self.generators.update.call(self.weights)
        return self.weights, list(told.values())

def prepare():
    random.seed(0)

async def main():
    host = this_host()
    async with (host.spawn_procs(per_host={"gpus": 2}, bootstrap=prepare) as inference,
                host.spawn_procs() as training):
        buffer = training.spawn("buffer", Buffer, capacity=8)
        generators = inference.spawn("generators", Generator, buffer)
        learner = training.spawn("learner", Learner, buffer, generators)
        stepping = asyncio.ensure_future(as_task(learner.step.call_one()))
        generators.generate.broadcast(1)
        print(await stepping)
        await asyncio.gather(*(generators.slice(gpus=g).generate.call_one(2) for g in range(2)))
        print(await learner.step.call_one())
        asked = generators.update
        print(await Accumulator(asked, 0, lambda a, b: a + b).accumulate(9))
        futures = [f for f in generators.update.stream(7)]
        print(sorted([await f for f in futures]))

async def as_task(future):
    return await future

asyncio.run(main())
"""

POOL = """
import os, queue
import monarch.actor
from monarch.actor import (Actor, MeshFailure, context, endpoint,
    get_or_spawn_controller, shutdown_context, this_host, this_proc)

class Tally(Actor):
    def __init__(self):
        self.done = {}

    @endpoint
    def add(self, who, result):
        self.done[who] = result
        return len(self.done)

    @endpoint
    def total(self):
        return sum(self.done.values())

class Worker(Actor):
    def __init__(self, tally):
        self.tally = tally

    @endpoint
    def work(self, numbers):
        rank = context().actor_instance.rank.rank
        done = self.tally.add.call_one(f"{context().actor_instance.name}{rank}", sum(numbers)).get()
        if rank == 0:
            context().actor_instance.stop("this shard is done")
        return done

    @endpoint
    def crash(self):
        os._exit(3)

class Pool(Actor):
    def __init__(self):
        self.failures = queue.Queue()

    @endpoint
    def begin(self, num):
        tally = get_or_spawn_controller("tally", Tally).get()
        self.procs = this_host().spawn_procs(per_host={"workers": num})
        self.workers = self.procs.spawn("workers", Worker, tally)
        return self.workers

    @endpoint
    def failed(self):
        return self.failures.get(timeout=30)

    @endpoint
    def end(self):
        self.procs.stop("the pool is closed").get()

    def __supervise__(self, failure: MeshFailure):
        self.failures.put(failure.mesh_name.partition("-")[0])
        return True

monarch.actor.unhandled_fault_hook = lambda failure: None
pool = this_proc().spawn("pool", Pool)
workers = pool.begin.call_one(3).get()
for rank in range(3):
    part = workers.flatten("w").slice(w=rank)
    print(rank, part.work.call_one([rank, 10]).get())
try:
    workers.flatten("w").slice(w=0).work.call_one([1]).get(timeout=20)
except Exception as error:
    print(type(error).__name__, "stopped" in str(error))
print(get_or_spawn_controller("tally", Tally).get().total.call_one().get())
try:
    workers.flatten("w").slice(w=2).crash.call_one().get()
except Exception as error:
    print(type(error).__name__)
assert pool.failed.call_one().get()
pool.end.call_one().get()
shutdown_context().get()
"""


def test_parts_of_a_mesh_and_who_an_actor_is_there(tmp_path):
    assert run(PARTS, tmp_path) == [
        "[(0, 2, 0, 10), (1, 2, 0, 20), (2, 2, 1, 30), (3, 2, 1, 40)]",
        "[(0, 2, 1, 30), (1, 2, 1, 40)]",
        "[(0, 1, 0, 20), (1, 1, 1, 40)]",
        "(0, 1, 1, 60)",
        "300",
        "raised ValueError('no')",
        "('shards', 1, ('helper', 'Helper'))",
    ]


def test_a_learner_with_a_buffer_and_generators_that_go_on_beside_it(tmp_path):
    assert run(LEARNING, tmp_path) == ["(3, [0, 1])", "(6, [0, 1])", "1", "[0, 1]"]


def test_a_pool_whose_workers_end_by_themselves_or_fail(tmp_path):
    assert run(POOL, tmp_path) == [
        "0 1",
        "1 2",
        "2 3",
        "SupervisionError True",
        "33",
        "SupervisionError",
    ]
