"""How a bench measures row by row, shows them in one table beside its peers, and writes them.

Owns the table and the JSON of a bench.  Figures are of this machine and this moment; all sides are
measured in the same run, one after the other, row by row.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from danaus.app.bench_figures import Figure, Goal, noise
from danaus.core.errors import ConfigError, DanausError

OURS = "danaus"
Measured = dict[str, dict[str, dict[str, Any]]]  # by row, then by side


class Named(Protocol):
    """Whatever is measured, as the table sees it."""

    name: str


class Row(Protocol):
    """A row, as the table sees it."""

    @property
    def title(self) -> str:
        """What it is about."""

    @property
    def goals(self) -> Mapping[str, Goal]:
        """What this project is to reach, by the figure that shows it."""


R = TypeVar("R", bound=Row)
S = TypeVar("S", bound=Named)


def chosen(names: Sequence[str], rows: Mapping[str, R]) -> dict[str, R]:
    """Return the rows of these names; none: all.

    Raises:
        ConfigError: There is no such row.
    """
    for name in names:
        if name not in rows:
            raise ConfigError(f"no row {name!r}", f"of {', '.join(rows)}")
    return {name: row for name, row in rows.items() if not names or name in names}


def measure_on(sides: Sequence[S], measure: Callable[[S], list[Figure]]) -> dict[str, Any]:
    """Measure a row on every side, one after the other; a side that fails says why."""
    told: dict[str, Any] = {}
    for side in sides:
        idle_noise = noise()
        try:
            figures = measure(side)
        except DanausError as error:
            figures = [Figure("all of it", words=error.message())]
        told[side.name] = {"noise": idle_noise, "figures": figures}
    return told


def table(rows: Mapping[str, R], measured: Measured, peers: Sequence[str]) -> Table:
    """Return all rows, with a column for each of ``peers`` before ours."""
    told = Table(title="median (worst)", box=box.SIMPLE_HEAD)
    for column in ("", *peers, OURS, "to reach", ""):
        told.add_column(column, overflow="fold")
    for name, row in rows.items():
        told.add_row(f"[bold]{row.title}[/bold]")
        sides = [_by_name(measured[name], side) for side in (*peers, OURS)]
        for what in dict.fromkeys(each for side in sides for each in side):
            told.add_row(what, *_cells([side.get(what) for side in sides], row.goals.get(what)))
    return told


def _by_name(told: dict[str, Any], side: str) -> dict[str, Figure]:
    figures: list[Figure] = told[side]["figures"] if side in told else []
    return {figure.what: figure for figure in figures}


def _cells(figures: list[Figure | None], goal: Goal | None) -> list[str]:
    """Return a row's cells after its name; the last of ``figures`` is ours."""
    high = goal is not None and goal.high_is_good
    told = [each.text(high_is_good=high) if each else "" for each in figures]
    *peers, ours = figures
    if goal is None or ours is None:
        return [*told, "", ""]
    met = goal.is_met(ours, peers[0] if peers else None)
    mark = "" if met is None else "reached" if met else "MISSED"
    return [*told, goal.text(ours.unit), mark]


def write(measured: Measured, out: Path | None, *, repeats: int, console: Console) -> None:
    """Write the figures as JSON, with when and where they were measured."""
    if out is None:
        return
    facts = {
        "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        "load": os.getloadavg(),
        "repeats": repeats,
        "rows": measured,
    }
    out.write_text(json.dumps(facts, indent=1, default=dataclasses.asdict) + "\n")
    console.print(f"written to {out}", highlight=False, soft_wrap=True)
