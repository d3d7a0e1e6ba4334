"""The verdict on a campaign, for a person, as JSON and as a section of a page.

Owns ``Judged``, ``judge`` and ``tell``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from danaus.app.campaign_figures import FaultFigure, KindFigure, by_kind, figures_of
from danaus.app.campaign_run import Course
from danaus.app.campaign_watch import Life
from danaus.app.compare import compare
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import RunRecord, read_end, read_run

_LEAST_WIDTH = 118
_TRACEBACK = "Traceback (most recent call last)"
_COLUMNS = (
    "fault", "times", "noticed after", "stalled for", "healed after", "lost", "right one blamed",
    "wrong one",
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """What a campaign came to.

    Args:
        same: Whether the bits are those of the undisturbed training.
        verdict: That in words; with the first step that differs.
        problems: What should not have been, in words.
        figures: Of each fault.
        course: How it went.
        num_commits: Steps that were committed.
    """

    same: bool
    verdict: str
    problems: tuple[str, ...]
    figures: tuple[FaultFigure, ...]
    course: Course
    num_commits: int

    @property
    def kinds(self) -> list[KindFigure]:
        """The figures by kind."""
        return by_kind(self.figures)


def judge(folder: RunFolder, course: Course, reference: tuple[RunRecord, str]) -> Judged:
    """Hold a run that was struck against the same training undisturbed."""
    record, (plain, sha256) = read_run(folder.path), reference
    comparison = compare(record, plain)
    end = read_end(folder)
    same = comparison.same and end is not None and end.sha256 == sha256
    verdict = comparison.verdict
    if comparison.same and not same:
        verdict = (
            "NO END: the run did not reach its last step"
            if end is None
            else f"DIFFERENT BITS: the state's sha256 is {end.sha256}, undisturbed {sha256}"
        )
    elif same:
        verdict += f"; sha256 {sha256}"
    problems = [*course.problems, *_tracebacks(folder)]
    left = course.num_planned - course.num_struck - course.num_missed - course.num_forgotten
    if left > 0:
        problems.append(f"{left} faults never struck: the run was over before")
    return Judged(
        same=same,
        verdict=verdict,
        problems=tuple(problems),
        figures=tuple(figures_of(record)),
        course=course,
        num_commits=max(record.lineage, default=0),
    )


def _tracebacks(folder: RunFolder) -> Iterator[str]:
    """Find what nobody caught: processes end by signals here, not by mistakes of ours."""
    for log in sorted((folder.path / "logs").glob("*.log")):
        text = log.read_text(errors="replace")
        if _TRACEBACK in text:
            last = text.rpartition(_TRACEBACK)[2].strip().splitlines()
            yield f"a traceback in {log.name}: {next((e for e in last if e[:1].strip()), '')}"


def tell(judged: Judged, facts: dict[str, Any], *, out: Path, console: Console) -> int:
    """Print what a campaign came to and write it as JSON; return the exit code.

    Args:
        judged: What.
        facts: What it was, for the JSON.
        out: Where the JSON goes.
        console: Where to print.
    """
    # A console prints nothing wider than itself, and piped it is 80 columns wide.
    wide = Console(file=console.file, width=max(console.width, _LEAST_WIDTH))
    for table in (_table(judged.kinds), _lives(judged.course.lives)):
        wide.print(table)
    for figure in judged.figures:
        for wrong in figure.wrong:
            _say(console, f"wrong blame after {figure.kind} of {figure.target}: {wrong}")
    for problem in judged.problems:
        _say(console, f"PROBLEM {problem}")
    course = judged.course
    _say(
        console,
        f"{len(judged.figures)} faults struck in {course.took_s:.0f} s, {course.num_missed} "
        f"missed, {course.num_forgotten} were asked for and never struck; "
        f"{judged.num_commits} steps; the controller was started {course.num_starts} times",
    )
    _say(console, judged.verdict)
    written = {**facts, "machine": machine(), "verdict": judged.verdict, **_as_json(judged)}
    out.write_text(json.dumps(written, indent=1) + "\n")
    _say(console, f"written to {out}; record {course.record}")
    return 0 if judged.same and not judged.problems else 1


def machine() -> str:
    """Return what this was measured on."""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {platform.platform()}, load {load:.1f}"


def _as_json(judged: Judged) -> dict[str, Any]:
    course = judged.course
    return {
        "problems": list(judged.problems),
        "kinds": [dataclasses.asdict(kind) for kind in judged.kinds],
        "faults": [dataclasses.asdict(figure) for figure in judged.figures],
        "processes": [dataclasses.asdict(life) for life in course.lives],
        "took_s": round(course.took_s, 1),
        "num_missed": course.num_missed,
        "num_forgotten": course.num_forgotten,
        "num_controllers": course.num_starts,
        "slowest_end_s": round(course.slowest_end_s, 2),
    }


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(kinds: Sequence[KindFigure]) -> Table:
    table = Table(title="seconds: median (worst)", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(_COLUMNS):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    for kind in kinds:
        table.add_row(*_cells(kind))
    return table


def _cells(kind: KindFigure) -> tuple[str, ...]:
    tries = f"{kind.num_tries} tries" if kind.num_tries != 1 else "1 try"
    steps = f"{kind.num_steps} steps" if kind.num_steps != 1 else "1 step"
    lost = f"{tries}, {steps}" if kind.num_steps else tries
    return (
        kind.kind,
        str(kind.num),
        _pair(kind.noticed_s),
        _pair(kind.stalled_s),
        _pair(kind.healed_s),
        lost if kind.num_tries or kind.num_steps else "–",
        str(kind.num_right) if kind.num_right else "–",
        str(kind.num_wrong) if kind.num_wrong else "–",
    )


def _pair(value: tuple[float, float] | None) -> str:
    return "–" if value is None else f"{value[0]:.2f} ({value[1]:.2f})"


_LIFE_COLUMNS = (
    "process", "for", "faults", "memory", "descriptors", "threads", "processor",
)  # fmt: skip


def _lives(lives: Sequence[Life]) -> Table:
    table = Table(
        title="those that lived longest: what they used at first, at last", box=box.SIMPLE_HEAD
    )
    for place, name in enumerate(_LIFE_COLUMNS):
        table.add_column(name, justify="right" if place else "left")
    for life in lives:
        table.add_row(*_life_cells(life))
    return table


def _life_cells(life: Life) -> tuple[str, ...]:
    first, last = life.first, life.last
    return (
        life.kind,
        f"{life.lived_s:.0f} s",
        str(life.num_faults),
        f"{first.rss_bytes / 2**20:.1f}, {last.rss_bytes / 2**20:.1f} MiB",
        f"{first.num_files}, {last.num_files}",
        f"{first.num_threads}, {last.num_threads}",
        f"{100 * life.cpu_share:.1f} %",
    )


def page_section(judged: Judged, command: str, *, when: str, words: Sequence[str]) -> str:
    """Return the section of a page: command, date, machine, tables.

    Args:
        judged: What.
        command: How it was made.
        when: Its date, and time, as ISO 8601 has it.
        words: Lines to stand below the tables.
    """
    course = judged.course
    head = (
        f"`{command}` on {when[:10]}, on {machine()}: "
        f"{len(judged.figures)} faults struck in {course.took_s:.0f} s and "
        f"{judged.num_commits:,} steps, {course.num_missed} found nothing to hit, "
        f"{course.num_forgotten} were asked for and never struck; the controller "
        f"was started {course.num_starts} times. {judged.verdict}."
    )
    tables = (
        _markdown(_COLUMNS, map(_cells, judged.kinds)),
        _markdown(_LIFE_COLUMNS, map(_life_cells, course.lives)),
    )
    found = [f"- {problem}" for problem in judged.problems]
    return "\n\n".join((head, *tables, *words, *(["\n".join(found)] if found else []))) + "\n"


def _markdown(columns: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(page: Path, heading: str, text: str) -> None:
    """Write one section of a page anew, and leave the others as they are."""
    old = page.read_text() if page.exists() else ""
    start = f"## {heading}\n"
    before, found, rest = old.partition(start)
    following = rest.partition("\n## ")[2] if found else ""
    tail = f"\n## {following}" if following else ""
    page.write_text(f"{before.rstrip()}\n\n{start}\n{text.strip()}\n{tail}".lstrip())
