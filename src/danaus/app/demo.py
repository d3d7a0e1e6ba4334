"""The demo: a small Llama is trained through real faults, beside the same training undisturbed.

Owns the script of faults and the last lines.  The faults are real signals to real processes; the
verdict compares every byte of the final states, and every step's fingerprints.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from danaus.app.compare import Comparison, compare, run_table
from danaus.app.events import Event
from danaus.app.experiment import RunOrder
from danaus.app.fault_script import FaultScript
from danaus.app.fault_table import fault_table
from danaus.app.launch import Launched, cost_of_losses, run_folder_of, watch
from danaus.app.narrator import Narrator
from danaus.app.progress import Progress
from danaus.app.report import write_report
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import read_run
from danaus.app.run_result import RunResult
from danaus.app.sabotage import flip_in_first_life
from danaus.app.settings import DemoConfig, RunConfig
from danaus.app.timeline import faults
from danaus.core.journal import Journal

_SERVICE_AWAY_S = 0.7
_REFERENCE_NICENESS = 5


@dataclass(frozen=True, slots=True)
class Hit:
    """One fault of the script: when, as a part of the run, and what."""

    at: float
    strike: Callable[[], None]


class Script:
    """Strike a run at stated moments, each time once everybody is back.

    Args:
        faults: What strikes.
        settings: The demo's.
    """

    def __init__(self, faults: FaultScript, settings: DemoConfig) -> None:
        self._faults, self._settings = faults, settings
        names = settings.replica_ids

        def kill_without_service() -> None:
            faults.kill_service(away_s=_SERVICE_AWAY_S)
            faults.signal_worker(names[0], signal.SIGKILL)

        self._hits = [
            Hit(0.10, lambda: faults.signal_worker(names[1], signal.SIGKILL)),
            Hit(0.30, lambda: faults.signal_worker(names[-1], signal.SIGSTOP)),
            Hit(0.55, kill_without_service),
            Hit(0.75, lambda: faults.suggest(names[-1])),
        ]
        if settings.sabotage:
            self._hits = []

    def poll(self, step: int, members: int) -> None:
        """Strike if it is time."""
        due = self._hits and step >= self._hits[0].at * self._settings.step.num_steps
        if due and members == self._settings.replicas and self._faults.settled():
            self._hits.pop(0).strike()


def run_demo(settings: DemoConfig, *, console: Console) -> int:
    """Run the demo; return the exit code: 0 if both runs end with the same bits."""
    folder = run_folder_of(settings)
    console.print(f"run folder {folder.path}", highlight=False, soft_wrap=True)
    for line in cost_of_losses(settings):
        console.print(line, highlight=False)
    orders = _order(settings, folder.path), _reference_order(settings, folder)
    run, reference = Launched("demo", orders[0]), Launched("undisturbed", orders[1])
    progress = Progress(settings.step.num_steps, settings.replicas, console=console)
    narrator = Narrator(folder, settings.replica_ids, progress)
    with Journal(folder.journal_path) as journal, progress:
        script = Script(FaultScript(run, journal), settings)

        def poll() -> None:
            narrator.poll()
            script.poll(narrator.step, narrator.members)

        watch([run, reference], poll)
    return _conclude(folder, run.result(), reference.result(), console)


def _order(settings: DemoConfig, path: Path) -> RunOrder:
    observers = {}
    if settings.sabotage:
        step = max(1, settings.step.num_steps // 3)
        flip = flip_in_first_life(step, path / "journal.jsonl")
        observers = {settings.replica_ids[-1]: (flip,)}
    return RunOrder(path, settings, heal=settings.heal, observers=observers)


def _reference_order(settings: DemoConfig, folder: RunFolder) -> RunOrder:
    """The same training by one replica that nothing happens to: the bits must not care."""
    shared = {f.name: getattr(settings, f.name) for f in dataclasses.fields(RunConfig)}
    alone = RunConfig(**{**shared, "replicas": 1, "run_dir": folder.undisturbed})
    RunFolder.create(folder.undisturbed, alone).release()
    return RunOrder(folder.undisturbed, alone, niceness=_REFERENCE_NICENESS)


def _conclude(
    folder: RunFolder, result: RunResult | None, alone: RunResult | None, console: Console
) -> int:
    record, reference = read_run(folder.path), read_run(folder.undisturbed)
    compared = compare(record, reference)
    told = faults(record)
    console.print(run_table(compared))
    console.print(fault_table(told))
    report = write_report(folder.path)
    console.print(f"report {report.html}", highlight=False, soft_wrap=True)
    if report.lacks:
        console.print(report.lacks, highlight=False, soft_wrap=True)
    same = result is not None and alone is not None and result.sha256 == alone.sha256
    restarts = sum(e.name == Event.RUN_RESUMED for e in record.events)
    line = _last_line(compared, result, len(told), restarts) if same else _differs(compared)
    console.print(line, style="bold green" if same else "bold red", highlight=False, soft_wrap=True)
    return 0 if same else 1


def _last_line(
    compared: Comparison, result: RunResult | None, num_faults: int, restarts: int
) -> str:
    step = compared.common_steps[-1]
    sha256 = result.sha256 if result else ""
    return (
        f"SAME BITS sha256 {sha256} at step {step} after {num_faults} faults, "
        f"{restarts} restarts of the job"
    )


def _differs(compared: Comparison) -> str:
    return compared.verdict if not compared.same else "DIFFERENT BITS in the final state"
