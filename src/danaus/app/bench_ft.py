"""``danaus bench ft``: every promise about failures in one table, beside a peer measured alike.

Owns the course of the bench, its table and its JSON.  Figures are of this machine and this
moment; both sides are measured in the same run, one after the other, row by row.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import platform
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from danaus.actor.here import shutdown_context
from danaus.app.bench_ft_figures import Figure, Goal, noise
from danaus.app.bench_ft_peer import Torchft
from danaus.app.bench_ft_rows import ROWS, Ground, Row
from danaus.app.bench_ft_settings import FtBenchConfig
from danaus.app.bench_ft_sides import Danaus, Side
from danaus.core.errors import ConfigError, DanausError
from danaus.core.temporary_folder import TemporaryFolder

_PEER = "torchft"


def run_bench(settings: FtBenchConfig, *, console: Console) -> int:
    """Measure the rows; print the table and write the JSON; return the exit code."""
    rows = _chosen(settings.rows)
    folder = TemporaryFolder()
    measured: dict[str, dict[str, Any]] = {}
    try:
        ground = Ground(folder.path, settings.repeats, settings.small)
        with Danaus.in_folder(folder.path) as danaus:
            sides: list[Side] = [danaus]
            if settings.peers is not None:
                sides.insert(0, Torchft(settings.peers / _PEER))
            for name, row in rows.items():
                console.print(f"{name}: {row.title}", highlight=False)
                measured[name] = _measure(row, sides, ground)
    finally:
        shutdown_context()
        folder.remove()
    console.print(_table(rows, measured))
    return _write(settings, measured, console)


def _chosen(names: Sequence[str]) -> dict[str, Row]:
    for name in names:
        if name not in ROWS:
            raise ConfigError(f"no row {name!r}", f"of {', '.join(ROWS)}")
    return {name: row for name, row in ROWS.items() if not names or name in names}


def _measure(row: Row, sides: Sequence[Side], ground: Ground) -> dict[str, Any]:
    """Measure a row on every side, one after the other; a side that fails says why."""
    told: dict[str, Any] = {}
    for side in sides:
        idle_noise = noise()
        try:
            figures = row.measure(ground, side)
        except DanausError as error:
            figures = [Figure("all of it", words=error.message())]
        told[side.name] = {"noise": idle_noise, "figures": figures}
    return told


# -- telling it -----------------------------------------------------------------------------


def _table(rows: dict[str, Row], measured: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="median (worst)", box=box.SIMPLE_HEAD)
    for column in ("", _PEER, "danaus", "to reach", ""):
        table.add_column(column, overflow="fold")
    for name, row in rows.items():
        table.add_row(f"[bold]{row.title}[/bold]")
        peer, ours = (_by_name(measured[name], side) for side in (_PEER, "danaus"))
        for what in dict.fromkeys((*peer, *ours)):
            table.add_row(what, *_cells(peer.get(what), ours.get(what), row.goals.get(what)))
    return table


def _by_name(told: dict[str, Any], side: str) -> dict[str, Figure]:
    figures: list[Figure] = told[side]["figures"] if side in told else []
    return {figure.what: figure for figure in figures}


def _cells(
    peer: Figure | None, ours: Figure | None, goal: Goal | None
) -> tuple[str, str, str, str]:
    high = goal is not None and goal.high_is_good
    told = [each.text(high_is_good=high) if each else "" for each in (peer, ours)]
    if goal is None or ours is None:
        return told[0], told[1], "", ""
    met = goal.is_met(ours, peer)
    mark = "" if met is None else "reached" if met else "MISSED"
    return told[0], told[1], goal.text(ours.unit), mark


def _write(settings: FtBenchConfig, measured: dict[str, dict[str, Any]], console: Console) -> int:
    facts = {
        "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        "load": os.getloadavg(),
        "repeats": settings.repeats,
        "rows": measured,
    }
    if settings.out is not None:
        text = json.dumps(facts, indent=1, default=dataclasses.asdict)
        settings.out.write_text(text + "\n")
        console.print(f"written to {settings.out}", highlight=False, soft_wrap=True)
    return 0
