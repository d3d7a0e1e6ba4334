"""The report of a run: one HTML file with everything in it, and its picture alone.

Owns ``write_report``.  Its facts come from ``run_record``, ``timeline`` and ``compare``, its
picture from ``picture``, its looks from ``report_page``.  A run that was killed midway, or has no
reference beside it, gets a report of what there is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danaus.app import picture, report_page
from danaus.app.compare import Comparison, compare
from danaus.app.events import Event
from danaus.app.fault_table import seconds
from danaus.app.report_page import Block, Fold, Tile
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import (
    Happening,
    RunRecord,
    incarnation_of,
    read_run,
    replica_of,
    tokens_per_s,
)
from danaus.app.timeline import Fault, faults, usual_gap_s
from danaus.core.errors import DependencyMissing

_LAST_LINES = 16


@dataclass(frozen=True)
class Report:
    """Where a report was written.

    Args:
        html: The page.
        png: The picture; None where matplotlib is not installed.
        lacks: What is missing from it and how to get it, in words.
    """

    html: Path
    png: Path | None
    lacks: str = ""


def write_report(path: Path) -> Report:
    """Write ``report.html`` and ``report.png`` into a run folder.

    Raises:
        ConfigError: There is no run at ``path``.
    """
    folder = RunFolder.open(path)
    record = read_run(path)
    reference = read_run(folder.undisturbed) if folder.undisturbed.is_dir() else None
    light = dark = None
    lacks = ""
    try:
        light = picture.draw(record, reference)
        dark = picture.draw(record, reference, theme=picture.DARK)
    except DependencyMissing as error:
        lacks = str(error)
    if light is not None:
        folder.report_png.write_bytes(light)
    page = report_page.page(
        title=record.name,
        lead=_lead(record),
        pictures=(light, dark) if light and dark else None,
        blocks=list(_blocks(record, reference)),
    )
    folder.report_html.write_text(page, encoding="utf-8")
    return Report(folder.report_html, folder.report_png if light else None, lacks)


def _lead(record: RunRecord) -> str:
    """Return how the run stands, in one sentence."""
    when = dt.datetime.fromtimestamp(record.start, tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    begun = f"Started {when}; " if record.start else ""
    ends: dict[str, Callable[[Happening], str]] = {
        Event.RUN_FINISHED: lambda _: "finished",
        Event.RUN_STOPPED: lambda e: (
            f"stopped after step {max(record.losses, default=0)} ({e.text('reason')})"
        ),
        Event.RUN_FAILED: lambda e: f"failed: {e.text('text')}",
    }
    for event in reversed(record.events):
        if event.name in ends:
            return f"{begun}{ends[event.name](event)}."
        if event.name == Event.RUN_STARTED:
            break
    return f"{begun}not finished: it is running, or was killed."


def _blocks(record: RunRecord, reference: RunRecord | None) -> Iterator[Block]:
    told = faults(record)
    compared = compare(record, reference) if reference is not None else None
    yield Block("", tiles=_tiles(record, told, compared))
    if told:
        yield Block("Faults", table=_fault_rows(told), folds=[_story(f) for f in told])
    yield Block("Members", table=_member_rows(record))
    yield Block("Last lines", lines=_last_lines(record))
    if record.config:
        yield Block("Settings", folds=[Fold("every resolved value", list(_flat(record.config)))])
    if record.notes:
        yield Block("Not read", lines=list(record.notes))


def _tiles(record: RunRecord, told: tuple[Fault, ...], compared: Comparison | None) -> list[Tile]:
    tiles = [
        Tile("steps committed", f"{max(record.losses, default=0):,}"),
        Tile("final loss", f"{record.losses[max(record.losses)]:.4f}" if record.losses else "–"),
        Tile("tokens/s", f"{rate:,.0f}" if (rate := tokens_per_s(record)) else "–"),
        Tile("goodput", f"{share:.0%}" if (share := goodput(record)) is not None else "–"),
        Tile("faults", str(len(told))),
    ]
    discarded = {(e.text("epoch"), e.text("step")) for e in record.events if _is_discard(e)}
    tiles.append(Tile("attempts discarded", str(len(discarded))))
    if finished := record.last(Event.RUN_FINISHED):
        tiles.append(Tile("restarts of the job", finished.text("job_restarts") or "0"))
    if compared is not None:
        good = compared.same
        tiles.append(Tile("against the undisturbed run", compared.verdict, wide=True, good=good))
    return tiles


def _is_discard(event: Happening) -> bool:
    return event.name == Event.STEP_DISCARDED


def goodput(record: RunRecord) -> float | None:
    """Return the part of the time, 0 to 1, that its steps would fill at their usual pace."""
    steps = [min(commits, key=lambda c: c.time) for commits in record.lineage.values()]
    took_s = steps[-1].time - steps[0].time if steps else 0.0
    if took_s <= 0:
        return None
    return min(1.0, usual_gap_s(steps) * (len(steps) - 1) / took_s)


def _fault_rows(told: tuple[Fault, ...]) -> list[tuple[str, ...]]:
    head = ("#", "fault", "at step", "noticed after", "survivors stalled for", "back after")
    rows = [
        (
            str(f.number),
            f.title,
            str(f.step),
            seconds(f.noticed_after_s),
            seconds(f.stalled_s),
            seconds(f.back_after_s),
        )
        for f in told
    ]
    return [head, *rows]


def _story(fault: Fault) -> Fold:
    moments = [f"{'+' + seconds(after):>10}  {words}" for after, words in fault.moments]
    return Fold(f"{fault.number}  {fault.title}", moments or ["nothing more is known of it"])


def _member_rows(record: RunRecord) -> list[tuple[str, ...]]:
    head = ("replica", "starts", "ranks replaced", "steps applied", "learned from peers")
    rows = []
    for name in record.replicas:
        incarnations = {
            e.incarnation or 0
            for e in record.events
            if e.name == Event.PROCESS_STARTED and e.replica == name
        }
        for commit in record.commits[-1:]:
            named = [incarnation_of(m) for m in commit.members if replica_of(m) == name]
            incarnations.update(named)
        steps = len({c.step for c in record.commits if c.replica == name})
        own = [event for event in record.events if event.replica == name]
        repairs = sum(event.name == Event.RANK_REPAIRED for event in own)
        learned = sum(event.number("bytes") or 0.0 for event in own if _tells_of_learning(event))
        size = f"{learned / 1e6:.1f} MB" if learned else "–"
        starts = str(len(incarnations) - repairs or "–")
        rows.append((name, starts, str(repairs or "–"), f"{steps:,}", size))
    return [head, *rows]


def _tells_of_learning(event: Happening) -> bool:
    """Tell whether a line is about bytes that were fetched, each once."""
    own = event.name in (Event.HEALED, Event.CAUGHT_UP)  # a replica's first rank tells those
    return own or (event.name == Event.RANK_HEALED and bool(event.number("rank")))


def _last_lines(record: RunRecord) -> list[str]:
    return [
        f"{event.time - record.start:9.2f} s  {describe(event)}"
        for event in record.events[-_LAST_LINES:]
    ]


def describe(event: Happening) -> str:
    """Return a journal line for a person: its name, then the facts that matter."""
    hidden = {"at", "mono", "event", "fingerprints", "settings"}
    facts = [
        f"{name}={_short(value)}"
        for name, value in event.facts.items()
        if name not in hidden and value not in (None, "", [], {})
    ]
    return f"{event.name.replace('_', ' ')}  {'  '.join(facts)}".rstrip()


def _short(value: Any) -> str:
    text = ", ".join(str(v) for v in value) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name} = {value}"
