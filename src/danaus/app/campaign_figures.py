"""What a campaign came to: each fault's figures, those of each kind, and what was found beside.

Owns ``FaultFigure``, ``KindFigure`` and ``figures_of``.  Times are ``timeline``'s, blame is
``blame``'s; what was lost is counted here, up to the next fault.  Pure functions of a run's record.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from danaus.app.blame import Blame, blames
from danaus.app.chaos_fault import Fault as Asked
from danaus.app.chaos_spec import read
from danaus.app.events import Event, FaultKind
from danaus.app.run_record import Happening, RunRecord
from danaus.app.timeline import Fault, faults


@dataclass(frozen=True, slots=True)
class FaultFigure:
    """One fault.

    Args:
        kind: As it is told apart in the table.
        target: Who was hit.
        step: Steps committed when it struck.
        noticed_s: From the fault to the first word of it; None: nobody noticed.
        stalled_s: Longest gap of a survivor beyond the usual one.
        healed_s: From the fault to full strength; None: nothing was to be healed.
        num_tries: Tries of a step that were discarded.
        num_steps: Committed steps that a rollback undid.
        right: What the target was accused of.
        wrong: Accusations of others, whom nothing had hit.
    """

    kind: str
    target: str
    step: int
    noticed_s: float | None
    stalled_s: float | None
    healed_s: float | None
    num_tries: int
    num_steps: int
    right: tuple[str, ...]
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindFigure:
    """All faults of one kind: (median, worst) of each time, in seconds; None where there is none.

    Args:
        kind: Which.
        num: How often it struck.
        noticed_s: See ``FaultFigure``.
        stalled_s: See ``FaultFigure``.
        healed_s: See ``FaultFigure``.
        num_tries: Discarded tries of all of them.
        num_steps: Lost steps of all of them.
        num_right: Faults for which the right one was blamed.
        num_wrong: Faults for which somebody else was.
    """

    kind: str
    num: int
    noticed_s: tuple[float, float] | None
    stalled_s: tuple[float, float] | None
    healed_s: tuple[float, float] | None
    num_tries: int
    num_steps: int
    num_right: int
    num_wrong: int


def figures_of(record: RunRecord) -> list[FaultFigure]:
    """Return the figures of each fault that struck, in order of time."""
    injected = {e.time: e for e in record.events if e.name == Event.FAULT_INJECTED}
    known = [fault for fault in faults(record) if fault.time in injected]
    blamed = blames(known, record)
    ends = [fault.time for fault in known[1:]] + [record.end + 1.0]
    return [
        _figure(
            fault, injected[fault.time], blamed[fault.number], losses=_Losses(record, fault, until)
        )
        for fault, until in zip(known, ends, strict=True)
    ]


def by_kind(figures: Sequence[FaultFigure]) -> list[KindFigure]:
    """Return the figures of each kind, in order of name."""
    found = []
    for kind in sorted({figure.kind for figure in figures}):
        own = [figure for figure in figures if figure.kind == kind]
        found.append(
            KindFigure(
                kind=kind,
                num=len(own),
                noticed_s=_median_and_worst([f.noticed_s for f in own]),
                stalled_s=_median_and_worst([f.stalled_s for f in own]),
                healed_s=_median_and_worst([f.healed_s for f in own]),
                num_tries=sum(f.num_tries for f in own),
                num_steps=sum(f.num_steps for f in own),
                num_right=sum(bool(f.right) for f in own),
                num_wrong=sum(bool(f.wrong) for f in own),
            )
        )
    return found


def label(asked: Asked) -> str:
    """Return how a fault is told apart from others of its kind in a table."""
    words = [asked.kind.value]
    if asked.where not in (None, "stop", "process"):
        words.append(asked.where or "")
    if asked.process not in (None, "worker", "host_agent") or (
        asked.process == "host_agent" and asked.kind is not FaultKind.PREEMPT
    ):
        words.append(asked.process or "")
    if asked.process == "worker" and asked.kind is FaultKind.PREEMPT:
        words.append("worker")
    if asked.kind is FaultKind.HANG and asked.for_s is not None:
        words.append(f"{asked.for_s:g}s")
    if asked.at_phase is not None:
        words.append(f"at {asked.at_phase}")
    return " ".join(word for word in words if word)


class _Losses:
    """What was lost between a fault and the next one."""

    def __init__(self, record: RunRecord, fault: Fault, until: float) -> None:
        window = [e for e in record.events if fault.time <= e.time < until]
        discarded = (e for e in window if e.name == Event.STEP_DISCARDED)
        self.num_tries = len({(e.number("step"), e.text("epoch")) for e in discarded})
        resumed = [int(e.number("step") or 0) for e in window if e.name == Event.RUN_RESUMED]
        self.num_steps = max(0, fault.step - min(resumed, default=fault.step))


def _figure(fault: Fault, event: Happening, blame: Blame, *, losses: _Losses) -> FaultFigure:
    noticed_s = fault.noticed_after_s
    if blame.right:
        first_s = blame.right[0].time - fault.time
        noticed_s = first_s if noticed_s is None else min(noticed_s, first_s)
    return FaultFigure(
        kind=label(read(event.text("spec"))),
        target=fault.target,
        step=fault.step,
        noticed_s=noticed_s,
        stalled_s=fault.stalled_s,
        healed_s=fault.back_after_s,
        num_tries=losses.num_tries,
        num_steps=losses.num_steps,
        right=tuple(f"{each.whom}: {each.words}" for each in blame.right),
        wrong=tuple(f"{each.whom}: {each.words}" for each in blame.wrong),
    )


def _median_and_worst(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (statistics.median(known), max(known)) if known else None
