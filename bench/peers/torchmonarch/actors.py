"""Monarch's actors in the shapes of ``danaus bench actor``.

Usage: actors.py ROW SHAPE   the shape as JSON; says the row's figures.
       actors.py worker ADDRESS   a host that waits for processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import monarch.actor as monarch
from monarch.actor import Actor, endpoint, this_host
from said import end_with_input, figure, large, leave, p50_and_p99, pss_mb, say

ASLEEP_S = 120.0
SETTLE_S = 0.5


class Plain(Actor):
    """Its endpoints are plain methods."""

    def __init__(self) -> None:
        self.num = 0

    @endpoint
    def ping(self, value: bytes) -> bytes:
        return value

    @endpoint
    def sink(self, value: object) -> None:
        self.num += 1

    @endpoint
    def count(self) -> int:
        num, self.num = self.num, 0
        return num

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def stay(self) -> None:
        threading.Event().wait(ASLEEP_S)


class OnLoop(Actor):
    """Its endpoints are coroutines."""

    @endpoint
    async def ping(self, value: bytes) -> bytes:
        return value

    @endpoint
    async def spans_to(self, other: Any, num: int) -> list[float]:
        return await spans_awaited(other, num)


async def spans_awaited(target: Any, num: int) -> list[float]:
    spans = []
    for _ in range(num):
        began = time.perf_counter()
        await target.ping.call_one(b"x")
        spans.append(time.perf_counter() - began)
    return spans


def us(runs: list[list[float]]) -> list[list[float]]:
    return [[1e6 * span for span in run] for run in runs]


def procs_of(num: int, name: str = "procs") -> Any:
    return this_host().spawn_procs(per_host={"procs": num}, name=name)


def awaited(shape: Any) -> list[dict[str, object]]:
    actors = procs_of(2).spawn("onloop", OnLoop)
    caller, target = actors.slice(procs=0), actors.slice(procs=1)

    async def from_program() -> list[list[float]]:
        await spans_awaited(target, shape.warm)
        return [await spans_awaited(target, shape.calls) for _ in range(shape.repeats)]

    told = p50_and_p99("from the program", "µs", us(asyncio.run(from_program())))
    caller.spans_to.call_one(target, shape.warm).get()
    runs = [caller.spans_to.call_one(target, shape.calls).get() for _ in range(shape.repeats)]
    return [*told, *p50_and_p99("from an actor", "µs", us(runs))]


def spans_got(call: Callable[[], Any], num: int) -> list[float]:
    spans = []
    for _ in range(num):
        began = time.perf_counter()
        call().get()
        spans.append(time.perf_counter() - began)
    return spans


def plain(num: int = 1) -> Any:
    actors = procs_of(num).spawn("plain", Plain)
    return actors.slice(procs=0) if num == 1 else actors


def got(shape: Any) -> list[dict[str, object]]:
    actor = plain()

    def call() -> Any:
        return actor.ping.call_one(b"x")

    spans_got(call, shape.warm)
    return p50_and_p99("", "µs", us([spans_got(call, shape.calls) for _ in range(shape.repeats)]))


def in_flight(shape: Any) -> list[dict[str, object]]:
    actor = plain()

    async def rate(num: int) -> float:
        left = iter(range(num))

        async def one_after_the_other() -> None:
            for _ in left:
                await actor.ping.call_one(b"x")

        began = time.perf_counter()
        await asyncio.gather(*(one_after_the_other() for _ in range(shape.flight)))
        return num / (time.perf_counter() - began)

    asyncio.run(rate(shape.warm))
    return [figure("calls", "/s", [asyncio.run(rate(shape.calls)) for _ in range(shape.repeats)])]


def broadcast(shape: Any) -> list[dict[str, object]]:
    actor = plain()

    def rate(num: int) -> float:
        began = time.perf_counter()
        for number in range(num):
            actor.sink.broadcast(number)
        assert actor.count.call_one().get() == num
        return num / (time.perf_counter() - began)

    rate(shape.warm)
    return [figure("messages", "/s", [rate(shape.calls) for _ in range(shape.repeats)])]


def mesh(shape: Any) -> list[dict[str, object]]:
    actors = plain(shape.procs)

    def call() -> Any:
        return actors.ping.call(b"x")

    spans_got(call, shape.warm)
    runs = [spans_got(call, shape.calls) for _ in range(shape.repeats)]
    return p50_and_p99("", "ms", [[1e3 * span for span in run] for run in runs])


def payload(shape: Any) -> list[dict[str, object]]:
    actor = plain()
    figures = []
    for kind, value in large(shape.mib):
        rates = []
        for at in range(-1, shape.repeats):
            num = shape.warm if at < 0 else shape.calls
            began = time.perf_counter()
            for _ in range(num):
                actor.sink.call_one(value).get()
            rates.append(num * shape.mib / 1024 / (time.perf_counter() - began))
        figures.append(figure(kind, "GiB/s", rates[1:]))
    return figures


def tcp(shape: Any) -> list[dict[str, object]]:
    monarch.enable_transport(monarch.ChannelTransport.TcpWithLocalhost)
    return payload(shape)


def start(shape: Any) -> list[dict[str, object]]:
    started, stopped, memory = [], [], []
    this_host()
    for at in range(shape.repeats):
        began = time.perf_counter()
        procs = procs_of(shape.procs, f"procs{at}")
        actors = procs.spawn("plain", Plain)
        actors.ping.call(b"x").get()
        started.append(time.perf_counter() - began)
        pids = [pid for _, pid in actors.pid.call().get().items()]
        time.sleep(SETTLE_S)
        memory.append(sum(map(pss_mb, pids)) / len(pids))
        began = time.perf_counter()
        procs.stop().get()
        stopped.append(time.perf_counter() - began)
    return [
        figure("started, the first call answered", "s", started),
        figure("stopped", "s", stopped),
        figure("PSS per idle process", "MB", memory),
    ]


def raises_after(actor: Any, pid: int) -> list[dict[str, object]]:
    pending = actor.stay.call_one()
    time.sleep(SETTLE_S)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    try:
        pending.get()
    except Exception:
        return [figure("after", "ms", [1e3 * (time.perf_counter() - began)])]
    return [figure("after", "", [], "it returned")]


def kill(shape: Any) -> list[dict[str, object]]:
    actor = plain(2).slice(procs=0)
    return raises_after(actor, actor.pid.call_one().get())


def host(shape: Any) -> list[dict[str, object]]:
    monarch.enable_transport(monarch.ChannelTransport.TcpWithLocalhost)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    worker = subprocess.Popen([sys.executable, __file__, "worker", address])
    try:
        hosts = monarch.attach_to_workers(ca="trust_all_connections", workers=[address])
        actors = hosts.spawn_procs(per_host={"procs": 1}).spawn("plain", Plain)
        actor = actors.slice(hosts=0, procs=0)
        actor.ping.call_one(b"x").get()
        return raises_after(actor, worker.pid)
    finally:
        worker.kill()
        worker.wait()


ROWS = {
    "await": awaited,
    "get": got,
    "flight": in_flight,
    "broadcast": broadcast,
    "mesh": mesh,
    "payload": payload,
    "tcp": tcp,
    "start": start,
    "kill": kill,
    "host": host,
}


def main() -> None:
    """Measure the row that the arguments name."""
    row, facts = sys.argv[1:]
    end_with_input()
    if row == "worker":
        monarch.run_worker_loop_forever(address=facts, ca="trust_all_connections")
        return
    monarch.unhandled_fault_hook = lambda _: None
    given = {"calls": 0, "warm": 0, "flight": 0, "procs": 0, "mib": 0, **json.loads(facts)}
    say(figures=ROWS[row](SimpleNamespace(**given)))
    leave()


if __name__ == "__main__":
    main()
