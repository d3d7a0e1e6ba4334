"""The table of faults that ends a demo and stands in a report.

Owns ``fault_table``, for terminals, and the words of a duration.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from danaus.app.timeline import Fault


def fault_table(rows: Sequence[Fault]) -> Table:
    """Return one row for each fault: what, when, and how long each consequence took."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("\n#", justify="right", no_wrap=True)
    table.add_column("\nfault", ratio=1)
    for name in (
        "at\nstep",
        "noticed\nafter",
        "survivors\nstalled for",
        "back at full\nstrength after",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for fault in rows:
        table.add_row(
            str(fault.number),
            fault.title,
            str(fault.step),
            seconds(fault.noticed_after_s),
            seconds(fault.stalled_s),
            seconds(fault.back_after_s),
        )
    return table


def seconds(value: float | None) -> str:
    """Return a duration for a person: ``4 ms``, ``0.16 s``, ``12.3 s`` or a dash."""
    if value is None:
        return "–"
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
