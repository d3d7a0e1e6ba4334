"""``danaus report``: a run's page and picture, and its faults as a table here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from danaus.app.fault_table import fault_table
from danaus.app.report import write_report
from danaus.app.run_record import read_run
from danaus.app.timeline import faults
from danaus.cli.arguments import build, read, show_help, wants_help


@dataclass(frozen=True)
class ReportCommand:
    """Write a run's report into its folder: report.html with everything in it, and report.png.

    Args:
        run: Folder of the run.
    """

    run: Path


def run(arguments: list[str]) -> int:
    """Write the report; return the exit code."""
    if wants_help(arguments):
        return show_help(ReportCommand, "report")
    asked = build(ReportCommand, read(arguments, ReportCommand, "report"), ("run",), "report")
    report = write_report(asked.run)
    console = Console(highlight=False, soft_wrap=True)
    if told := faults(read_run(asked.run)):
        console.print(fault_table(told))
    if report.lacks:
        console.print(f"no picture: {report.lacks}", markup=False)
    for path in (report.html, report.png):
        if path is not None:
            near = path.is_relative_to(Path.cwd())
            console.print(path.relative_to(Path.cwd()) if near else path, markup=False)
    return 0
