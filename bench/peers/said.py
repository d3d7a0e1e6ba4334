"""How the peers' programs speak: lines of JSON; they end with their standard input."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence


def end_with_input() -> None:
    """End this program once its input ends, whatever else it does."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def say(**facts: object) -> None:
    """Write one line of facts, whole."""
    os.write(1, json.dumps(facts).encode() + b"\n")


def leave() -> None:
    """End at once: servers of theirs keep threads that nothing else ends."""
    os._exit(0)


def figure(what: str, unit: str, values: Iterable[float], words: str = "") -> dict[str, object]:
    """Return one figure as the bench reads it."""
    return {"what": what, "unit": unit, "values": list(values), "words": words}


def p50_and_p99(what: str, unit: str, runs: Sequence[Sequence[float]]) -> list[dict[str, object]]:
    """Return the median and the 99th percentile of each run, as the bench's own side does."""
    high = [sorted(run)[min(len(run) - 1, round(0.99 * (len(run) - 1)))] for run in runs]
    before = f"{what}: " if what else ""
    return [
        figure(f"{before}p50", unit, map(statistics.median, runs)),
        figure(f"{before}p99", unit, high),
    ]


def pss_mb(pid: int) -> float:
    """Return a process's proportional share of memory in megabytes."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        (line,) = (each for each in file if each.startswith("Pss:"))
    return float(line.split()[1]) * 1024 / 1e6


def large(mib: int) -> Iterator[tuple[str, object]]:
    """Yield what is sent where much is sent, by its kind."""
    yield "bytes", os.urandom(1 << 20) * mib
    yield "tensor", importlib.import_module("torch").ones(mib << 18)
