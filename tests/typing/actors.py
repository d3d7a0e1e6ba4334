"""What a user's type checker is told of actors.  mypy reads this (``make check``); nobody runs it.

An ``ignore`` marks what must be refused: mypy reports one that is not needed.
"""

from __future__ import annotations

from typing import assert_type

from danaus.actor import (
    Actor,
    ActorMesh,
    Endpoint,
    Extent,
    Future,
    HostMesh,
    MeshFailure,
    Outcome,
    Point,
    ProcMesh,
    Restart,
    ValueMesh,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    this_host,
)
from danaus.job import JobState, LocalJob


class Counter(Actor):
    def __init__(self, start: int) -> None:
        self.n = start

    @endpoint
    def add(self, k: int, *, twice: bool = False) -> int:
        self.n += k * (2 if twice else 1)
        return self.n

    @endpoint
    async def look(self) -> str:
        assert_type(self.add(1), int)
        return assert_type(await self.look(), str)

    @concurrent_endpoint
    async def wait(self, seconds: float) -> None: ...

    async def __supervise__(self, failure: MeshFailure) -> bool:
        assert_type(failure.exit_code, int | None)
        return failure.kind == "signal"


def meshes() -> None:
    hosts = this_host()
    assert_type(hosts, HostMesh)
    assert_type(LocalJob(num_hosts=2).apply().state(), JobState)
    procs = hosts.spawn_procs(per_host={"gpus": 4}, name="procs")
    assert_type(procs, ProcMesh)
    assert_type(procs.slice(gpus=2).extent, Extent)
    assert_type(procs.initialized, Future[None])
    assert_type(procs.pids(), dict[str, int])
    assert_type(current_rank(), Point)
    assert_type(context().proc.process_id, str)


def spawning(procs: ProcMesh) -> None:
    counters = procs.spawn("counter", Counter, 10)
    assert_type(counters, ActorMesh[Counter])
    assert_type(counters.slice(gpus=slice(0, 2)), ActorMesh[Counter])
    assert_type(counters.size("gpus"), int)
    assert_type(len(counters), int)
    assert_type([point.rank for point in counters], list[int])
    assert_type(counters.initialized, Future[None])
    assert_type(counters.stop("its work is done"), Future[None])
    procs.spawn("counter", Counter, "ten")  # type: ignore[call-overload]
    procs.spawn("counter", Counter)  # type: ignore[call-overload]
    kept = procs.spawn("kept", Counter, 10, restart=Restart("one_for_all", intensity=5))
    assert_type(kept, ActorMesh[Counter])
    procs.spawn("kept", Counter, 10, restart=3)  # type: ignore[call-arg]


def calling(counters: ActorMesh[Counter]) -> None:
    assert_type(counters.add.call(1), Future[ValueMesh[int]])
    assert_type(counters.add.call(1, twice=True).get(timeout=3.0).item(gpus=1), int)
    assert_type(counters.add.call_one(1).get(), int)
    assert_type(counters.add.settled(1).get(), ValueMesh[Outcome[int]])
    assert_type(counters.add.with_options(timeout_s=2.0).call_one(1), Future[int])
    assert_type(counters.look.call_one().get(), str)
    assert_type(counters.wait.call(0.5).get(), ValueMesh[None])
    counters.add.broadcast(1)
    counters.add.call("one")  # type: ignore[arg-type]
    counters.add.call(1, thrice=True)  # type: ignore[call-arg]
    counters.add.broadcast()  # type: ignore[call-arg]
    counters.subtract.call(1)  # type: ignore[attr-defined]


async def awaiting(counters: ActorMesh[Counter]) -> None:
    assert_type(await counters.add.call(1), ValueMesh[int])
    assert_type(await counters.look.call_one(), str)
    for point, outcome in await counters.add.settled(1):
        assert_type(point, Point)
        assert_type(outcome.error, Exception | None)
        assert_type(outcome.get(), int)


def passing_on(counters: ActorMesh[Counter]) -> Endpoint[..., int]:
    return counters.add
