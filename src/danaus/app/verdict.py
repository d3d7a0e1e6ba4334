"""The end of a demo: were it the same bits, and after what.

Owns the tables and the last line.  The verdict compares every byte of the final states, and every
step's fingerprints.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from danaus.app.compare import Comparison, compare, run_table
from danaus.app.fault_table import fault_table
from danaus.app.launch import Launched, say
from danaus.app.report import write_report
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import RunRecord, job_restarts, read_run
from danaus.app.run_result import RunResult
from danaus.app.timeline import faults
from danaus.core.errors import ActorError, DanausError, Diverged


@dataclass(frozen=True, slots=True)
class Ending:
    """How one run ended: with a result, an error, or neither where it was stopped."""

    result: RunResult | None = None
    error: DanausError | None = None

    @property
    def known(self) -> bool:
        """Whether it came to an end, good or bad."""
        return self.result is not None or self.error is not None


def ending_of(run: Launched) -> Ending:
    """Return how a run ended; a mistake of our own is raised."""
    try:
        return Ending(run.result())
    except ActorError:
        raise
    except DanausError as error:
        return Ending(error=error)


def show(folder: RunFolder, ours: Ending, theirs: Ending, *, console: Console) -> int:
    """Show what both runs came to, write the report, and judge; return the exit code.

    Args:
        folder: The demo's; the undisturbed run's lies in it.
        ours: How the run that was hit ended.
        theirs: How the undisturbed one ended.
        console: Where to show it.
    """
    record, reference = read_run(folder.path), read_run(folder.undisturbed)
    compared = compare(record, reference)
    told = faults(record)
    console.print()
    console.print(run_table(compared))
    if told:
        console.print(fault_table(told))
    for line in _report(folder):
        say(console, line)
    same = ours.result is not None and theirs.result is not None and compared.same
    same = same and ours.result.sha256 == theirs.result.sha256  # type: ignore[union-attr]
    if same and ours.result is not None:
        line = _same_line(ours.result, len(told), job_restarts(record.events))
    else:
        line = _other_line(compared, ours, theirs)
    say(console, line, "bold green" if same else "bold red")
    return 0 if same else 1


def _report(folder: RunFolder) -> Iterator[str]:
    """Write the report; return what there is to be said of it."""
    try:
        report = write_report(folder.path)
    except OSError as error:  # no room for it, say: the verdict stands all the same
        again = f"danaus report {os.path.relpath(folder.path)}"
        yield f"no report: {error.strerror or error}; write it later: {again}"
        return
    yield f"report {os.path.relpath(report.html)}"
    if report.lacks:
        yield report.lacks


def _same_line(result: RunResult, num_faults: int, restarts: int) -> str:
    return (
        f"SAME BITS sha256 {result.sha256} at step {result.step} after "
        f"{_counted(num_faults, 'fault')}, {_counted(restarts, 'restart')} of the job"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _other_line(compared: Comparison, ours: Ending, theirs: Ending) -> str:
    """Return what is not as it should be, the first step that differs where one does."""
    if isinstance(ours.error, Diverged):
        return _diverged_line(ours.error, compared.b)
    error = ours.error or theirs.error
    if error is not None:
        which = "the run" if ours.error else "the undisturbed run"
        return f"NOT COMPARED to the end: {which} failed: {error}"
    if ours.result is None or theirs.result is None:
        return "NOT COMPARED to the end: a run was stopped"
    if compared.same:
        return f"DIFFERENT BITS in the final state after step {ours.result.step}"
    return compared.verdict


def _diverged_line(error: Diverged, reference: RunRecord) -> str:
    each = [f"{name} has {value}" for name, value in sorted(error.fingerprints.items())]
    right = {commit.fingerprint for commit in reference.lineage.get(error.step, ())}
    each += [f"undisturbed it is {value}" for value in sorted(right)]
    return f"DIFFERENT BITS from step {error.step} on: {', '.join(each)}"
