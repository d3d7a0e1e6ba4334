"""``danaus bench actor``: what the actor runtime costs, beside peers measured alike.

Owns the course of the bench; rows are ``app.bench_actor_rows``'.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rich.console import Console

from danaus.app.bench_actor_rows import ROWS, Row
from danaus.app.bench_actor_settings import ActorBenchConfig
from danaus.app.bench_figures import Figure, together
from danaus.app.bench_peer import Peer
from danaus.app.bench_processes import Programs
from danaus.app.bench_table import OURS, Measured, chosen, measure_on, table, write
from danaus.core.clock import Deadline
from danaus.core.temporary_folder import TemporaryFolder

PEERS = ("torchmonarch", "ray")
_PROGRAM = "actors"
_OUR_PROGRAM = "danaus.app.bench_actor_ours"
_LIMIT_S = 600.0


class Side(Protocol):
    """Whatever is measured: one program for all rows."""

    name: str

    def command(self, *arguments: object) -> list[str]:
        """Return the command line of its program."""
        ...


class OurSide:
    """This project."""

    name = OURS

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", _OUR_PROGRAM, *map(str, arguments)]


class PeerSide:
    """A peer, in the environment that ``make peers`` has made for it."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._peer = Peer(folder)

    def command(self, *arguments: object) -> list[str]:
        return self._peer.command(_PROGRAM, *arguments)


def run_bench(settings: ActorBenchConfig, *, console: Console) -> int:
    """Measure the rows; print the table and write the JSON; return the exit code."""
    rows = chosen(settings.rows, ROWS)
    sides: list[Side] = [OurSide()]
    if settings.peers is not None:
        sides[:0] = [PeerSide(settings.peers / name) for name in PEERS]
    folder = TemporaryFolder()
    measured: Measured = {}
    try:
        bench = _Bench(settings, folder.path)
        for name, row in rows.items():
            console.print(f"{name}: {row.title}", highlight=False)
            able = [side for side in sides if side.name in (OURS, *row.peers)]
            measured[name] = measure_on(able, functools.partial(bench.measure, name))
    finally:
        folder.remove()
    console.print(table(rows, measured, [side.name for side in sides[:-1]]))
    write(measured, settings.out, repeats=settings.repeats, console=console)
    return 0


class _Bench:
    """Runs the sides' programs.

    Args:
        settings: How often, and how much.
        folder: Where what they say is kept.
    """

    def __init__(self, settings: ActorBenchConfig, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._numbers: Iterator[int] = itertools.count()

    def measure(self, name: str, side: Side) -> list[Figure]:
        """Measure a row on one side."""
        row = ROWS[name]
        times = self._settings.repeats if row.apart else 1
        found: dict[str, list[Figure]] = {}
        for _ in range(times):
            for figure in self._run(name, row, side):
                found.setdefault(figure.what, []).append(figure)
        return [together(each) for each in found.values()]

    def _run(self, name: str, row: Row, side: Side) -> list[Figure]:
        facts = row.facts(self._settings.repeats, small=self._settings.small)
        with Programs(self._folder / str(next(self._numbers))) as programs:
            program = programs.start(side.command(name, json.dumps(facts)), name="program")
            said = program.wait(Deadline.after(_LIMIT_S))
        return [
            Figure(each["what"], each["unit"], tuple(each["values"]), each["words"])
            for each in said["figures"]
        ]
