"""The rows of ``danaus bench actor``: what is measured, in which shape, and what it is to reach.

Owns ``Row`` and ``ROWS``.  Every side runs a program of its own for a row, which takes the row's
name and its shape and says its figures: ours is ``app.bench_actor_ours``, the peers' lie in
``bench/peers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from danaus.app.bench_figures import Goal

Shape = Mapping[str, int]


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        title: What it is about.
        shape: Sizes and counts, for the program that measures it.
        small: Those that differ where it is only to be seen that everything runs.
        goals: What this project is to reach, by the figure that shows it.
        apart: Each repeat is a program of its own: what it measures ends the program, or may.
        peers: Who can do it at all.
    """

    title: str
    shape: Shape
    small: Shape
    goals: Mapping[str, Goal] = field(default_factory=dict)
    apart: bool = False
    peers: tuple[str, ...] = ("torchmonarch", "ray")

    def facts(self, repeats: int, *, small: bool) -> dict[str, int]:
        """Return what a program is told."""
        times = 1 if self.apart else repeats
        return {**self.shape, **(self.small if small else {}), "repeats": times}


_CALLS: Shape = {"calls": 2000, "warm": 300}
_FEW: Shape = {"calls": 20, "warm": 5}
_MESH: Shape = {"procs": 32}
_SMALL_MESH: Shape = {"procs": 3}
_LARGE: Shape = {"mib": 64, "calls": 4, "warm": 2}
_LESS_LARGE: Shape = {"mib": 4, "calls": 2, "warm": 1}

ROWS: Mapping[str, Row] = {
    "await": Row(
        "call_one of 1 byte, awaited on a loop, async endpoint",
        _CALLS,
        _FEW,
        {
            "from the program: p50": Goal(90),
            "from the program: p99": Goal(200),
            "from an actor: p50": Goal(90),
            "from an actor: p99": Goal(200),
        },
    ),
    "get": Row(
        "call_one of 1 byte, .get() in a plain thread, plain endpoint",
        _CALLS,
        _FEW,
        {"p50": Goal(130), "p99": Goal(250)},
    ),
    "flight": Row(
        "call_one of 1 byte, 64 in flight",
        {"calls": 6000, "warm": 300, "flight": 64},
        {"calls": 100, "warm": 5},
        {"calls": Goal(50_000, high_is_good=True)},
    ),
    "broadcast": Row(
        "pipelined broadcast, one to one, until all are handled",
        {"calls": 20_000, "warm": 300},
        {"calls": 200, "warm": 5},
        {"messages": Goal(200_000, high_is_good=True)},
    ),
    "mesh": Row(
        "call on 32 actors in 32 processes",
        {**_MESH, "calls": 100, "warm": 20},
        {**_SMALL_MESH, "calls": 5, "warm": 2},
        {"p50": Goal(2.5)},
    ),
    "payload": Row(
        "64 MiB to one actor, one way, on one host",
        _LARGE,
        _LESS_LARGE,
        {"tensor": Goal(6.0, high_is_good=True)},
    ),
    "tcp": Row(
        "64 MiB to one actor, one way, over TCP (loopback)",
        _LARGE,
        _LESS_LARGE,
        {"tensor": Goal(2.5, high_is_good=True)},
        peers=("torchmonarch",),
    ),
    "start": Row(
        "32 processes, an actor in each",
        _MESH,
        _SMALL_MESH,
        {
            "started, the first call answered": Goal(0.4),
            "stopped": Goal(0.3),
            "PSS per idle process": Goal(20),
        },
    ),
    "kill": Row(
        "A process is SIGKILLed: its pending call raises",
        {},
        {},
        {"after": Goal(7)},
        apart=True,
    ),
    "host": Row(
        "A whole host is SIGKILLed: a pending call raises",
        {},
        {},
        {"after": Goal(50)},
        apart=True,
        peers=("torchmonarch",),
    ),
}
