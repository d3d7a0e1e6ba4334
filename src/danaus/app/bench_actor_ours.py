"""Our program of ``danaus bench actor``: measures one row and says its figures.

Usage: ``python -m danaus.app.bench_actor_ours ROW SHAPE``, the shape as JSON.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from danaus.actor import ProcMesh, SupervisionError, shutdown_context, this_host
from danaus.app.bench_actor_cast import OnLoop, Plain, spans_awaited
from danaus.app.bench_figures import Figure, p50_and_p99, scaled, seen
from danaus.app.bench_processes import end_with_input, say
from danaus.job import LocalJob
from danaus.wire.address import Address

_MS, _US = 1e3, 1e6
_LIMIT_S = 60.0
_SETTLE_S = 0.5


@dataclass(frozen=True)
class Shape:
    """Sizes and counts of a row; what a row does not use is 0."""

    repeats: int
    calls: int = 0
    warm: int = 0
    flight: int = 0
    procs: int = 0
    mib: int = 0


@contextmanager
def _procs(num: int) -> Iterator[ProcMesh]:
    procs = this_host().spawn_procs(per_host={"procs": num})
    try:
        yield procs
    finally:
        procs.stop().get(_LIMIT_S)


def _us(runs: list[list[float]]) -> list[list[float]]:
    return [[_US * span for span in run] for run in runs]


def _awaited(shape: Shape) -> list[Figure]:
    async def from_program() -> list[list[float]]:
        await spans_awaited(target, shape.warm)
        return [await spans_awaited(target, shape.calls) for _ in range(shape.repeats)]

    with _procs(2) as procs:
        actors = procs.spawn("onloop", OnLoop)
        caller, target = actors.slice(procs=0), actors.slice(procs=1)
        told = p50_and_p99("from the program", "µs", _us(asyncio.run(from_program())))
        caller.spans_to.call_one(target, shape.warm).get()
        runs = [caller.spans_to.call_one(target, shape.calls).get() for _ in range(shape.repeats)]
        return [*told, *p50_and_p99("from an actor", "µs", _us(runs))]


def _got(shape: Shape) -> list[Figure]:
    def spans(num: int) -> list[float]:
        found = []
        for _ in range(num):
            began = time.perf_counter()
            actor.ping.call_one(b"x").get()
            found.append(time.perf_counter() - began)
        return found

    with _procs(1) as procs:
        actor = procs.spawn("plain", Plain)
        spans(shape.warm)
        return p50_and_p99("", "µs", _us([spans(shape.calls) for _ in range(shape.repeats)]))


def _in_flight(shape: Shape) -> list[Figure]:
    async def rate(num: int) -> float:
        left = iter(range(num))

        async def one_after_the_other() -> None:
            for _ in left:
                await actor.ping.call_one(b"x")

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(shape.flight):
                group.create_task(one_after_the_other())
        return num / (time.perf_counter() - began)

    with _procs(1) as procs:
        actor = procs.spawn("plain", Plain)
        asyncio.run(rate(shape.warm))
        rates = tuple(asyncio.run(rate(shape.calls)) for _ in range(shape.repeats))
        return [Figure("calls", "/s", rates)]


def _broadcast(shape: Shape) -> list[Figure]:
    def rate(num: int) -> float:
        began = time.perf_counter()
        for number in range(num):
            actor.sink.broadcast(number)
        handled = actor.count.call_one().get()
        assert handled == num, f"{handled} of {num}"
        return num / (time.perf_counter() - began)

    with _procs(1) as procs:
        actor = procs.spawn("plain", Plain)
        rate(shape.warm)
        rates = tuple(rate(shape.calls) for _ in range(shape.repeats))
        return [Figure("messages", "/s", rates)]


def _mesh(shape: Shape) -> list[Figure]:
    def spans(num: int) -> list[float]:
        found = []
        for _ in range(num):
            began = time.perf_counter()
            actors.ping.call(b"x").get()
            found.append(_MS * (time.perf_counter() - began))
        return found

    with _procs(shape.procs) as procs:
        actors = procs.spawn("plain", Plain)
        spans(shape.warm)
        return p50_and_p99("", "ms", [spans(shape.calls) for _ in range(shape.repeats)])


def _payload(shape: Shape) -> list[Figure]:
    with _procs(1) as procs:
        return _payloads(procs, shape)


def _tcp(shape: Shape) -> list[Figure]:
    job = LocalJob(1)
    job.bind = Address.tcp("127.0.0.1", 0)
    with job:
        procs = job.state().hosts.spawn_procs(per_host={"procs": 1})
        return _payloads(procs, shape)


def _payloads(procs: ProcMesh, shape: Shape) -> list[Figure]:
    actor = procs.spawn("plain", Plain).slice(**dict.fromkeys(procs.sizes, 0))
    figures: list[Figure] = []
    for kind, payload in _large(shape.mib):
        rates = []
        for at in range(-1, shape.repeats):
            num = shape.warm if at < 0 else shape.calls
            began = time.perf_counter()
            for _ in range(num):
                actor.sink.call_one(payload).get()
            rates.append(num * shape.mib / 1024 / (time.perf_counter() - began))
        figures.append(Figure(kind, "GiB/s", tuple(rates[1:])))
    return figures


def _large(mib: int) -> Iterator[tuple[str, object]]:
    yield "bytes", os.urandom(1 << 20) * mib
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return
    yield "tensor", torch.ones(mib << 18)


def _start(shape: Shape) -> list[Figure]:
    started, stopped, memory = [], [], []
    this_host()
    for _ in range(shape.repeats):
        began = time.perf_counter()
        procs = this_host().spawn_procs(per_host={"procs": shape.procs})
        actors = procs.spawn("plain", Plain)
        actors.ping.call(b"x").get()
        started.append(time.perf_counter() - began)
        pids = actors.pid.call().get().values()
        time.sleep(_SETTLE_S)
        memory.append(sum(map(_pss_mb, pids)) / len(pids))
        began = time.perf_counter()
        procs.stop().get(_LIMIT_S)
        stopped.append(time.perf_counter() - began)
    return [
        Figure("started, the first call answered", "s", tuple(started)),
        Figure("stopped", "s", tuple(stopped)),
        Figure("PSS per idle process", "MB", tuple(memory)),
    ]


def _pss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        (line,) = (each for each in file if each.startswith("Pss:"))
    return float(line.split()[1]) * 1024 / 1e6


def _kill(shape: Shape) -> list[Figure]:
    with _procs(2) as procs:
        actor = procs.spawn("plain", Plain).slice(procs=0)
        return _raises_after(actor, actor.pid.call_one().get())


def _host(shape: Shape) -> list[Figure]:
    with LocalJob(1) as job:
        actor = job.state().hosts.slice(hosts=0).spawn_procs().spawn("plain", Plain)
        actor.ping.call_one(b"x").get()
        return _raises_after(actor, job.agent_pids()["host0"])


def _raises_after(actor: Any, pid: int) -> list[Figure]:
    """Kill ``pid`` while a call waits; return how long until the call raises."""
    pending = actor.stay.call_one()
    time.sleep(_SETTLE_S)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    try:
        pending.get(_LIMIT_S)
    except SupervisionError:
        return [Figure("after", "ms", scaled((time.perf_counter() - began,), _MS))]
    return [seen("after", "it returned")]


ROWS: dict[str, Callable[[Shape], list[Figure]]] = {
    "await": _awaited,
    "get": _got,
    "flight": _in_flight,
    "broadcast": _broadcast,
    "mesh": _mesh,
    "payload": _payload,
    "tcp": _tcp,
    "start": _start,
    "kill": _kill,
    "host": _host,
}


def main() -> None:
    """Measure the row that the arguments name."""
    row, facts = sys.argv[1:]
    end_with_input()
    # Deaths are what some rows are about: they must not end this program.
    vars(sys.modules["danaus.actor"])["unhandled_fault_hook"] = lambda _: None
    figures = ROWS[row](Shape(**json.loads(facts)))
    say(figures=[dataclasses.asdict(figure) for figure in figures])
    shutdown_context()


if __name__ == "__main__":
    main()
