"""``danaus bench ft``: every promise about failures in one table, beside a peer measured alike.

Owns the course of the bench; rows are ``app.bench_ft_rows``'.
"""

from __future__ import annotations

import functools

from rich.console import Console

from danaus.actor.here import shutdown_context
from danaus.app.bench_ft_peer import Torchft
from danaus.app.bench_ft_rows import ROWS, Ground
from danaus.app.bench_ft_settings import FtBenchConfig
from danaus.app.bench_ft_sides import Danaus, Side
from danaus.app.bench_table import Measured, chosen, measure_on, table, write
from danaus.core.temporary_folder import TemporaryFolder


def run_bench(settings: FtBenchConfig, *, console: Console) -> int:
    """Measure the rows; print the table and write the JSON; return the exit code."""
    rows = chosen(settings.rows, ROWS)
    folder = TemporaryFolder()
    measured: Measured = {}
    try:
        ground = Ground(folder.path, settings.repeats, settings.small)
        with Danaus.in_folder(folder.path) as danaus:
            sides: list[Side] = [danaus]
            if settings.peers is not None:
                sides.insert(0, Torchft(settings.peers / Torchft.name))
            for name, row in rows.items():
                console.print(f"{name}: {row.title}", highlight=False)
                measured[name] = measure_on(sides, functools.partial(row.measure, ground))
    finally:
        shutdown_context()
        folder.remove()
    console.print(table(rows, measured, (Torchft.name,)))
    write(measured, settings.out, repeats=settings.repeats, console=console)
    return 0
