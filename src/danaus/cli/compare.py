"""``danaus compare``: two runs side by side; exit code 1 if their bits differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from danaus.app.compare import compare, loss_table, run_table
from danaus.app.run_record import read_run
from danaus.cli.arguments import build, read, show_help, wants_help


@dataclass(frozen=True)
class CompareCommand:
    """Compare two runs: their bits step by step, and their losses.

    Args:
        a: Folder of a run.
        b: Folder of another run.
    """

    a: Path
    b: Path


def run(arguments: list[str]) -> int:
    """Compare; return 0 for the same bits, 1 for others."""
    if wants_help(arguments):
        return show_help(CompareCommand, "compare")
    given = read(arguments, CompareCommand, "compare")
    asked = build(CompareCommand, given, ("a", "b"), "compare")
    comparison = compare(read_run(asked.a), read_run(asked.b))
    console = Console(highlight=False, soft_wrap=True)
    console.print(run_table(comparison))
    if comparison.common_steps:
        console.print()
        console.print(loss_table(comparison))
        step, difference = comparison.largest_loss_difference()
        if difference:
            console.print(f"\nlargest difference of losses: {difference:.3g} at step {step}")
    for record in (comparison.a, comparison.b):
        for note in record.notes:
            console.print(f"note on {record.name}: {note}", markup=False)
    for words in comparison.unlike_settings():
        console.print(f"another training: {words}", markup=False)
    console.print(f"\n{comparison.verdict}", markup=False)
    return 0 if comparison.same else 1
