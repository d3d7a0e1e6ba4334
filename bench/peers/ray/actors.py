"""Ray's actors in the shapes of ``danaus bench actor``.

Usage: actors.py ROW SHAPE   the shape as JSON; says the row's figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import ray
from said import end_with_input, figure, large, leave, p50_and_p99, pss_mb, say

ASLEEP_S = 120.0
SETTLE_S = 0.5
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
        return await spans_awaited(other, num)


async def spans_awaited(target: Any, num: int) -> list[float]:
    spans = []
    for _ in range(num):
        began = time.perf_counter()
        await target.ping.remote(b"x")
        spans.append(time.perf_counter() - began)
    return spans


def us(runs: list[list[float]]) -> list[list[float]]:
    return [[1e6 * span for span in run] for run in runs]


def awaited(shape: Any) -> list[dict[str, object]]:
    caller, target = OnLoop.remote(), OnLoop.remote()

    async def from_program() -> list[list[float]]:
        await spans_awaited(target, shape.warm)
        return [await spans_awaited(target, shape.calls) for _ in range(shape.repeats)]

    told = p50_and_p99("from the program", "µs", us(asyncio.run(from_program())))
    ray.get(caller.spans_to.remote(target, shape.warm))
    runs = [ray.get(caller.spans_to.remote(target, shape.calls)) for _ in range(shape.repeats)]
    return [*told, *p50_and_p99("from an actor", "µs", us(runs))]


def spans_got(actors: list[Any], num: int) -> list[float]:
    spans = []
    for _ in range(num):
        began = time.perf_counter()
        ray.get([actor.ping.remote(b"x") for actor in actors])
        spans.append(time.perf_counter() - began)
    return spans


def got(shape: Any) -> list[dict[str, object]]:
    actors = [Plain.remote()]
    spans_got(actors, shape.warm)
    runs = [spans_got(actors, shape.calls) for _ in range(shape.repeats)]
    return p50_and_p99("", "µs", us(runs))


def in_flight(shape: Any) -> list[dict[str, object]]:
    actor = Plain.remote()

    def rate(num: int) -> float:
        began = time.perf_counter()
        pending = []
        for _ in range(num):
            pending.append(actor.ping.remote(b"x"))
            if len(pending) >= shape.flight:
                ray.get(pending.pop(0))
        ray.get(pending)
        return num / (time.perf_counter() - began)

    rate(shape.warm)
    return [figure("calls", "/s", [rate(shape.calls) for _ in range(shape.repeats)])]


def broadcast(shape: Any) -> list[dict[str, object]]:
    actor = Plain.remote()

    def rate(num: int) -> float:
        began = time.perf_counter()
        for number in range(num):
            actor.sink.remote(number)
        assert ray.get(actor.count.remote()) == num
        return num / (time.perf_counter() - began)

    rate(shape.warm)
    return [figure("messages", "/s", [rate(shape.calls) for _ in range(shape.repeats)])]


def mesh(shape: Any) -> list[dict[str, object]]:
    actors = [Plain.remote() for _ in range(shape.procs)]
    spans_got(actors, shape.warm)
    runs = [spans_got(actors, shape.calls) for _ in range(shape.repeats)]
    return p50_and_p99("", "ms", [[1e3 * span for span in run] for run in runs])


def payload(shape: Any) -> list[dict[str, object]]:
    actor = Plain.remote()
    figures = []
    for kind, value in large(shape.mib):
        rates = []
        for at in range(-1, shape.repeats):
            num = shape.warm if at < 0 else shape.calls
            began = time.perf_counter()
            for _ in range(num):
                ray.get(actor.sink.remote(value))
            rates.append(num * shape.mib / 1024 / (time.perf_counter() - began))
        figures.append(figure(kind, "GiB/s", rates[1:]))
    return figures


def start(shape: Any) -> list[dict[str, object]]:
    started, memory = [], []
    for _ in range(shape.repeats):
        began = time.perf_counter()
        actors = [Plain.remote() for _ in range(shape.procs)]
        spans_got(actors, 1)
        started.append(time.perf_counter() - began)
        pids = ray.get([actor.pid.remote() for actor in actors])
        time.sleep(SETTLE_S)
        memory.append(sum(map(pss_mb, pids)) / len(pids))
        for actor in actors:
            ray.kill(actor)
        time.sleep(2 * SETTLE_S)
    return [
        figure("started, the first call answered", "s", started),
        figure("PSS per idle process", "MB", memory),
    ]


def kill(shape: Any) -> list[dict[str, object]]:
    actor = Plain.remote()
    pid = ray.get(actor.pid.remote())
    pending = actor.stay.remote()
    time.sleep(SETTLE_S)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    try:
        ray.get(pending)
    except ray.exceptions.RayError:
        return [figure("after", "ms", [1e3 * (time.perf_counter() - began)])]
    return [figure("after", "", [], "it returned")]


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
    row, facts = sys.argv[1:]
    end_with_input()
    given = {"calls": 0, "warm": 0, "flight": 0, "procs": 0, "mib": 0, **json.loads(facts)}
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
        figures = ROWS[row](SimpleNamespace(**given))
    finally:
        ray.shutdown()
    say(figures=figures)
    leave()


if __name__ == "__main__":
    main()
