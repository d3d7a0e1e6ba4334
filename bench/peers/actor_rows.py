"""How a row of ``danaus bench actor`` is timed, and what is said of it: the same for each peer.

A peer's program says how its actors are made and called, and hands that over.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from said import figure, large, p50_and_p99, pss_mb

ASLEEP_S = 120.0
SETTLE_S = 0.5
_PER_S = {"µs": 1e6, "ms": 1e3}

Figures = list[dict[str, object]]


def row_of(rows: Mapping[str, Callable[[Any], Figures]]) -> Figures:
    """Measure the row that the arguments name, in the shape that they give as JSON."""
    row, facts = sys.argv[1:]
    given = {"calls": 0, "warm": 0, "flight": 0, "procs": 0, "mib": 0, **json.loads(facts)}
    return rows[row](SimpleNamespace(**given))


def spans(call: Callable[[], object], num: int) -> list[float]:
    """Return how long each call took, one after the other."""
    found = []
    for _ in range(num):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


async def spans_awaited(call: Callable[[], Awaitable[object]], num: int) -> list[float]:
    """Return how long each call took, one after the other, on a loop."""
    found = []
    for _ in range(num):
        began = time.perf_counter()
        await call()
        found.append(time.perf_counter() - began)
    return found


def latency(
    shape: Any, timed: Callable[[int], list[float]], what: str = "", unit: str = "µs"
) -> Figures:
    """Return p50 and p99; ``timed`` makes so many calls and says how long each took."""
    timed(shape.warm)
    runs = [timed(shape.calls) for _ in range(shape.repeats)]
    return p50_and_p99(what, unit, [[_PER_S[unit] * span for span in run] for run in runs])


def rate(shape: Any, carry_out: Callable[[int], object], what: str) -> Figures:
    """Return how many a second ``carry_out`` gets through, which is told how many."""

    def per_s(num: int) -> float:
        began = time.perf_counter()
        carry_out(num)
        return num / (time.perf_counter() - began)

    per_s(shape.warm)
    return [figure(what, "/s", [per_s(shape.calls) for _ in range(shape.repeats)])]


def payload(shape: Any, send: Callable[[object], object]) -> Figures:
    """Return how much a second ``send`` brings over and has acknowledged."""
    figures = []
    for kind, value in large(shape.mib):
        rates = []
        for at in range(-1, shape.repeats):
            num = shape.warm if at < 0 else shape.calls
            began = time.perf_counter()
            for _ in range(num):
                send(value)
            rates.append(num * shape.mib / 1024 / (time.perf_counter() - began))
        figures.append(figure(kind, "GiB/s", rates[1:]))
    return figures


def idle_mb(pids: Iterable[int]) -> float:
    """Return what memory each of some processes takes, once they have come to rest."""
    time.sleep(SETTLE_S)
    found = [pss_mb(pid) for pid in pids]
    return sum(found) / len(found)


def raises_after(pid: int, wait: Callable[[], object]) -> Figures:
    """Kill a process; return how soon a call to it that is under way raises."""
    time.sleep(SETTLE_S)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    try:
        wait()
    except Exception:
        return [figure("after", "ms", [1e3 * (time.perf_counter() - began)])]
    return [figure("after", "", [], "it returned")]
