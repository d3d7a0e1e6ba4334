"""Monarch's actors in the shapes of ``danaus bench actor``.

Usage: actors.py ROW SHAPE   the shape as JSON; says the row's figures.
       actors.py worker ADDRESS   a host that waits for processes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import monarch.actor as monarch
from actor_rows import (
    ASLEEP_S,
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
from monarch.actor import Actor, endpoint, this_host
from said import end_with_input, figure, leave, say


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
        return await spans_awaited(lambda: other.ping.call_one(b"x"), num)


def procs_of(num: int, name: str = "procs") -> Any:
    return this_host().spawn_procs(per_host={"procs": num}, name=name)


def awaited(shape: Any) -> Figures:
    actors = procs_of(2).spawn("onloop", OnLoop)
    caller, target = actors.slice(procs=0), actors.slice(procs=1)

    def from_program(num: int) -> list[float]:
        return asyncio.run(spans_awaited(lambda: target.ping.call_one(b"x"), num))

    def from_actor(num: int) -> list[float]:
        return caller.spans_to.call_one(target, num).get()

    program = latency(shape, from_program, "from the program")
    return [*program, *latency(shape, from_actor, "from an actor")]


def plain(num: int = 1) -> Any:
    actors = procs_of(num).spawn("plain", Plain)
    return actors.slice(procs=0) if num == 1 else actors


def got(shape: Any) -> Figures:
    actor = plain()
    return latency(shape, lambda num: spans(lambda: actor.ping.call_one(b"x").get(), num))


def in_flight(shape: Any) -> Figures:
    actor = plain()

    async def call(num: int) -> None:
        left = iter(range(num))

        async def one_after_the_other() -> None:
            for _ in left:
                await actor.ping.call_one(b"x")

        await asyncio.gather(*(one_after_the_other() for _ in range(shape.flight)))

    return rate(shape, lambda num: asyncio.run(call(num)), "calls")


def broadcast(shape: Any) -> Figures:
    actor = plain()

    def send(num: int) -> None:
        for number in range(num):
            actor.sink.broadcast(number)
        assert actor.count.call_one().get() == num

    return rate(shape, send, "messages")


def mesh(shape: Any) -> Figures:
    actors = plain(shape.procs)
    return latency(shape, lambda num: spans(lambda: actors.ping.call(b"x").get(), num), unit="ms")


def payload(shape: Any) -> Figures:
    actor = plain()
    return payload_of(shape, lambda value: actor.sink.call_one(value).get())


def tcp(shape: Any) -> Figures:
    monarch.enable_transport(monarch.ChannelTransport.TcpWithLocalhost)
    return payload(shape)


def start(shape: Any) -> Figures:
    started, stopped, memory = [], [], []
    this_host()
    for at in range(shape.repeats):
        began = time.perf_counter()
        procs = procs_of(shape.procs, f"procs{at}")
        actors = procs.spawn("plain", Plain)
        actors.ping.call(b"x").get()
        started.append(time.perf_counter() - began)
        memory.append(idle_mb(pid for _, pid in actors.pid.call().get().items()))
        began = time.perf_counter()
        procs.stop().get()
        stopped.append(time.perf_counter() - began)
    return [
        figure("started, the first call answered", "s", started),
        figure("stopped", "s", stopped),
        figure("PSS per idle process", "MB", memory),
    ]


def kill(shape: Any) -> Figures:
    actor = plain(2).slice(procs=0)
    pid, pending = actor.pid.call_one().get(), actor.stay.call_one()
    return raises_after(pid, pending.get)


def host(shape: Any) -> Figures:
    monarch.enable_transport(monarch.ChannelTransport.TcpWithLocalhost)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    worker = subprocess.Popen([sys.executable, __file__, "worker", address])
    try:
        hosts = monarch.attach_to_workers(ca="trust_all_connections", workers=[address])
        actors = hosts.spawn_procs(per_host={"procs": 1}).spawn("plain", Plain)
        actor = actors.slice(hosts=0, procs=0)
        actor.ping.call_one(b"x").get()
        return raises_after(worker.pid, actor.stay.call_one().get)
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
    end_with_input()
    if sys.argv[1] == "worker":
        monarch.run_worker_loop_forever(address=sys.argv[2], ca="trust_all_connections")
        return
    monarch.unhandled_fault_hook = lambda _: None
    say(figures=row_of(ROWS))
    leave()


if __name__ == "__main__":
    main()
