"""Ray's actors in the shapes of ``danaus bench actor``.

Usage: actors.py ROW SHAPE   the shape as JSON; says the row's figures.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import ray
from actor_rows import (
    ASLEEP_S,
    SETTLE_S,
    Figures,
    idle_mb,
    latency,
    raises_after,
    rate,
    row_of,
    spans,
    spans_awaited,
)
from actor_rows import payload as payload_of
from said import end_with_input, figure, leave, say

STORE_BYTES = 2 << 30


@ray.remote(num_cpus=0)
class Plain:
    """Its methods are plain."""

    def __init__(self) -> None:
        self.num = 0

    def ping(self, value: bytes) -> bytes:
        return value

    def sink(self, value: object) -> None:
        self.num += 1

    def count(self) -> int:
        num, self.num = self.num, 0
        return num

    def pid(self) -> int:
        return os.getpid()

    def stay(self) -> None:
        threading.Event().wait(ASLEEP_S)


@ray.remote(num_cpus=0)
class OnLoop:
    """Its methods are coroutines."""

    async def ping(self, value: bytes) -> bytes:
        return value

    async def spans_to(self, other: Any, num: int) -> list[float]:
        return await spans_awaited(lambda: other.ping.remote(b"x"), num)


def awaited(shape: Any) -> Figures:
    caller, target = OnLoop.remote(), OnLoop.remote()

    def from_program(num: int) -> list[float]:
        return asyncio.run(spans_awaited(lambda: target.ping.remote(b"x"), num))

    def from_actor(num: int) -> list[float]:
        return ray.get(caller.spans_to.remote(target, num))

    program = latency(shape, from_program, "from the program")
    return [*program, *latency(shape, from_actor, "from an actor")]


def ping(actors: list[Any]) -> None:
    ray.get([actor.ping.remote(b"x") for actor in actors])


def got(shape: Any) -> Figures:
    actors = [Plain.remote()]
    return latency(shape, lambda num: spans(lambda: ping(actors), num))


def in_flight(shape: Any) -> Figures:
    actor = Plain.remote()

    def call(num: int) -> None:
        pending = []
        for _ in range(num):
            pending.append(actor.ping.remote(b"x"))
            if len(pending) >= shape.flight:
                ray.get(pending.pop(0))
        ray.get(pending)

    return rate(shape, call, "calls")


def broadcast(shape: Any) -> Figures:
    actor = Plain.remote()

    def send(num: int) -> None:
        for number in range(num):
            actor.sink.remote(number)
        assert ray.get(actor.count.remote()) == num

    return rate(shape, send, "messages")


def mesh(shape: Any) -> Figures:
    actors = [Plain.remote() for _ in range(shape.procs)]
    return latency(shape, lambda num: spans(lambda: ping(actors), num), unit="ms")


def payload(shape: Any) -> Figures:
    actor = Plain.remote()
    return payload_of(shape, lambda value: ray.get(actor.sink.remote(value)))


def start(shape: Any) -> Figures:
    started, memory = [], []
    for _ in range(shape.repeats):
        began = time.perf_counter()
        actors = [Plain.remote() for _ in range(shape.procs)]
        ping(actors)
        started.append(time.perf_counter() - began)
        memory.append(idle_mb(ray.get([actor.pid.remote() for actor in actors])))
        for actor in actors:
            ray.kill(actor)
        time.sleep(2 * SETTLE_S)
    return [
        figure("started, the first call answered", "s", started),
        figure("PSS per idle process", "MB", memory),
    ]


def kill(shape: Any) -> Figures:
    actor = Plain.remote()
    pid = ray.get(actor.pid.remote())
    pending = actor.stay.remote()
    return raises_after(pid, lambda: ray.get(pending))


ROWS = {
    "await": awaited,
    "get": got,
    "flight": in_flight,
    "broadcast": broadcast,
    "mesh": mesh,
    "payload": payload,
    "start": start,
    "kill": kill,
}


def main() -> None:
    """Measure the row that the arguments name."""
    end_with_input()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=STORE_BYTES,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        figures = row_of(ROWS)
    finally:
        ray.shutdown()
    say(figures=figures)
    leave()


if __name__ == "__main__":
    main()
