"""``danaus bench recovery``: how long survivors stall and when all are back, measured here.

Owns the faults that are injected, the figures that are taken from a run's own record, and their
table and JSON.  Figures are of this machine and this moment; ratios come from one run.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from danaus.app.campaign import Campaign
from danaus.app.chaos import FaultPlan
from danaus.app.events import Event, FaultKind
from danaus.app.experiment import RunOrder
from danaus.app.launch import Launched, watch
from danaus.app.narrator import Narrator
from danaus.app.plain_ddp import plain_tokens_per_s
from danaus.app.progress import Progress
from danaus.app.run_folder import RunFolder, default_run_path
from danaus.app.run_record import Commit, RunRecord, read_run
from danaus.app.settings import BenchConfig, RunConfig, fleet_of
from danaus.app.stopping import StopSignals
from danaus.app.timeline import Fault, faults
from danaus.core.config import load
from danaus.train.metrics import read_metrics
from danaus.train.presets import preset

HANG_LIMIT_S = 3.0
_WARM_UP_STEPS = 8
_MANY_STEPS = 100_000
_SETTLE_STEPS = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """What one fault cost.

    Args:
        kind: What struck.
        noticed_s: From the fault to the first word of it.
        next_commit_s: From the fault to the survivors' next committed step.
        gap_s: The survivors' gap between two committed steps in which it fell.
        reduced_step_s: A step at the reduced membership.
        back_s: From the fault to the first step that everybody commits again.
        entered_s: From the fault to the quorum that counts the replica again.
        num_lost: Committed steps that were lost.
    """

    kind: str
    noticed_s: float | None
    next_commit_s: float
    gap_s: float
    reduced_step_s: float
    back_s: float | None
    entered_s: float | None
    num_lost: int


def run_bench(settings: BenchConfig, *, console: Console) -> int:
    """Measure every preset; print the tables and write the JSON; return the exit code."""
    parent = settings.run_dir or default_run_path("bench", dt.datetime.now().astimezone())
    measured = {
        name: _measure(name, settings, parent=parent, console=console) for name in settings.presets
    }
    facts = {
        "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        "replicas": settings.replicas,
        "presets": measured,
    }
    out = settings.out or parent / "recovery.json"
    out.write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"written to {out}", highlight=False, soft_wrap=True)
    return 0


def _measure(name: str, settings: BenchConfig, *, parent: Path, console: Console) -> dict[str, Any]:
    config = _config(name, settings, parent / name)
    folder = RunFolder.create(parent / name, config)
    folder.release()
    record = _disturb(folder, config, repeats=settings.repeats, console=console)
    figures = list(_figures(record))
    managed = _managed_tokens_per_s(folder, config)
    steps = max(_WARM_UP_STEPS, int(10.0 * managed / config.step.num_tokens))
    plain = plain_tokens_per_s(name, settings.replicas, min(steps, 200))
    console.print(_table(name, figures))
    console.print(
        f"{name}: {managed:,.0f} tokens/s managed, {plain:,.0f} in plain DDP over Gloo: "
        f"{managed / plain:.2f} of it",
        highlight=False,
    )
    return {
        "faults": [dataclasses.asdict(figure) for figure in figures],
        "tokens_per_s": {"managed": managed, "plain_ddp": plain, "ratio": managed / plain},
    }


def _config(name: str, settings: BenchConfig, path: Path) -> RunConfig:
    config = load(RunConfig, base=preset(name))
    return dataclasses.replace(
        config,
        replicas=settings.replicas,
        run_dir=path,
        hang_limit_s=HANG_LIMIT_S,
        step=dataclasses.replace(config.step, num_steps=_MANY_STEPS),
    )


# -- disturbing a run -----------------------------------------------------------------------


def _disturb(folder: RunFolder, config: RunConfig, *, repeats: int, console: Console) -> RunRecord:
    """Run until every fault was injected and survived; return what the run's files tell."""
    run = Launched("bench", RunOrder(folder.path, config))
    progress = Progress(_MANY_STEPS, config.replicas, console=console)
    narrator = Narrator(folder, config.replica_ids, progress)
    with (
        Campaign(folder, FaultPlan(), fleet_of(config)) as campaign,
        progress,
        StopSignals() as signals,
    ):
        plan = list(_plan(config, repeats))
        due = _WARM_UP_STEPS

        def poll() -> None:
            nonlocal due
            narrator.poll()
            campaign.look()
            if campaign.step < due or not campaign.all_back:
                return
            if not plan:
                run.stop("the bench is done")
                return
            campaign.strike_now(plan.pop(0))
            due = campaign.step + _SETTLE_STEPS

        watch([run], poll, signals=signals, progress=progress)
    if signals.asked:
        raise KeyboardInterrupt
    run.result()
    return read_run(folder.path)


def _plan(config: RunConfig, repeats: int) -> Iterator[str]:
    for number in range(repeats):
        victim = number % config.replicas
        yield f"kill:replica={victim}"
        yield "kill_coordinator"
        yield f"hang:replica={victim}"


# -- figures --------------------------------------------------------------------------------


def _figures(record: RunRecord) -> Iterator[Figure]:
    for fault in faults(record):
        survivors = [commits for name, commits in record.by_replica.items() if name != fault.target]
        around = [_around(commits, fault.time) for commits in survivors]
        yield Figure(
            kind=str(fault.kind),
            noticed_s=fault.noticed_after_s,
            next_commit_s=max(after - fault.time for _, after in around),
            gap_s=max(after - before for before, after in around),
            reduced_step_s=_reduced_step_s(record, fault),
            back_s=fault.back_after_s,
            entered_s=_entered_s(record, fault),
            num_lost=_num_lost(record, fault),
        )


def _around(commits: list[Commit], moment: float) -> tuple[float, float]:
    """Return the times of the last commit before a moment and the first after it."""
    before = max((c.time for c in commits if c.time <= moment), default=moment)
    after = min((c.time for c in commits if c.time > moment), default=moment)
    return before, after


def _reduced_step_s(record: RunRecord, fault: Fault) -> float:
    """Return the time of a step at the membership after the fault, as that run's steps took."""
    whole = len(record.replicas)
    gaps: list[float] = []
    for commits in record.by_replica.values():
        for before, after in zip(commits, commits[1:], strict=False):
            if len(before.replicas) == len(after.replicas) == whole - 1:
                gaps.append(after.time - before.time)
    if gaps and fault.kind is not FaultKind.KILL_COORDINATOR:
        return statistics.median(gaps)
    commits = next(iter(record.by_replica.values()))
    return statistics.median(b.time - a.time for a, b in zip(commits, commits[1:], strict=False))


def _entered_s(record: RunRecord, fault: Fault) -> float | None:
    """Return when a quorum counted the replica again."""
    for event in record.events:
        if event.name != Event.QUORUM_ANNOUNCED or event.time < fault.time:
            continue
        for member in event.names("members"):
            replica_id, _, rest = member.partition("/")
            incarnation = int(rest.partition("#")[2] or 0)
            if replica_id == fault.target and incarnation > (fault.incarnation or 0):
                return event.time - fault.time
    return None


def _num_lost(record: RunRecord, fault: Fault) -> int:
    """Return how many committed steps a rollback after the fault undid."""
    before = max((c.step for c in record.commits if c.time <= fault.time), default=0)
    resumed = [
        int(e.number("step") or 0)
        for e in record.events
        if e.name == Event.RUN_RESUMED and e.time > fault.time
    ]
    return max(0, before - min(resumed, default=before))


def _managed_tokens_per_s(folder: RunFolder, config: RunConfig) -> float:
    """Return the median rate of steps that every replica took part in."""
    rates = [
        float(line["tokens_per_s"])
        for name in config.replica_ids
        for line in read_metrics(folder.metrics_path(name))
        if "tokens_per_s" in line and line.get("num_replicas") == config.replicas
    ]
    return statistics.median(rates)


def _table(name: str, figures: list[Figure]) -> Table:
    table = Table(title=f"{name}: median (worst) in seconds", box=box.SIMPLE_HEAD)
    columns = {
        "noticed": "noticed_s",
        "next\ncommit": "next_commit_s",
        "gap": "gap_s",
        "reduced\nstep": "reduced_step_s",
        "counted\nagain": "entered_s",
        "all\nback": "back_s",
    }
    table.add_column("fault", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("steps\nlost", justify="right")
    for kind in dict.fromkeys(figure.kind for figure in figures):
        of_kind = [figure for figure in figures if figure.kind == kind]
        cells = [
            _median_and_worst([getattr(f, field) for f in of_kind]) for field in columns.values()
        ]
        table.add_row(kind, *cells, str(sum(f.num_lost for f in of_kind)))
    return table


def _median_and_worst(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.2f}\n({max(known):.2f})" if known else "–"
