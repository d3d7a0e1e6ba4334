"""Who was in which state when: the lanes of a report's picture.

Owns ``Span``, ``lanes`` and ``service_lane``, pure functions of a ``RunRecord``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from danaus.app.events import Event, FaultKind
from danaus.app.run_record import Happening, RunRecord, replica_of
from danaus.app.timeline import gaps, usual_gap_s

State = Literal["starting", "learning", "member", "hung", "down"]


@dataclass(frozen=True)
class Span:
    """A stretch of time in which a replica was in one state."""

    start: float
    end: float
    state: State


def lanes(record: RunRecord) -> dict[str, tuple[Span, ...]]:
    """Return each replica's states over the run, in order of time."""
    turns: dict[str, list[tuple[float, State]]] = {name: [] for name in record.replicas}
    ends = _ends(record)
    for event in record.events:
        if event.time in ends:
            for turn in turns.values():
                turn.append((ends[event.time], "down"))
        for name, state in _turns(event, record.replicas):
            if name in turns:
                turns[name].append((event.time, state))
        if event.name in (Event.FAULT_LIFTED, Event.FAULT_MISSED):
            _let_go(turns.get(event.text("target"), []), event.time)
    if not any(turns.values()):
        return {name: _lane_of_commits(record, name) for name in record.replicas}
    return {name: _spans(turn, record.end) for name, turn in turns.items()}


def service_lane(record: RunRecord) -> tuple[Span, ...]:
    """Return when the quorum service was up (``member``) and down."""
    turns: list[tuple[float, State]] = []
    end, ends = record.end, _ends(record)
    for event in record.events:
        if event.time in ends and turns:
            turns.append((ends[event.time], "down"))
        if event.name in (Event.SERVICE_STARTED, Event.SERVICE_RESTARTED):
            turns.append((event.time, "member"))
        elif event.name == Event.SERVICE_EXITED:
            turns.append((event.time, "down"))
    last = record.last(Event.SERVICE_EXITED)
    if turns and last is not None and last.time == turns[-1][0] and last.facts.get("expected"):
        end = last.time  # it was not needed any more
    return _spans(turns, end)


_ALL_AT_ONCE: dict[str, State] = {
    Event.RUN_STARTED: "starting",
    Event.RUN_STOPPED: "down",
    Event.RUN_FAILED: "down",
}


def _ends(record: RunRecord) -> dict[float, float]:
    """Return when each part of a run ended, by when the next part began.

    Whatever ended it may have written nothing down: it was there until its last sign of life.
    """
    ends: dict[float, float] = {}
    seen = record.start
    for event in record.events:
        if event.name == Event.RUN_STARTED and event.facts.get("resume"):
            commits = (c.time for c in record.commits if seen < c.time < event.time)
            ends[event.time] = max(commits, default=seen)
        seen = event.time
    return ends


def _turns(event: Happening, replicas: Sequence[str]) -> list[tuple[str, State]]:
    """Return which replicas an event puts into which state."""
    who = event.replica
    if event.name in _ALL_AT_ONCE:
        return [(name, _ALL_AT_ONCE[event.name]) for name in replicas]
    if event.name == Event.QUORUM_ANNOUNCED:
        members = {replica_of(m) for m in event.names("members")}
        learners = {replica_of(m) for m in event.names("learners")}
        found: list[tuple[str, State]] = [(name, "learning") for name in sorted(learners)]
        return found + [(name, "member") for name in replicas if name in members - learners]
    if event.name == Event.FAULT_INJECTED and event.text("kind") == FaultKind.HANG:
        return [(event.text("target"), "hung")]
    states: dict[str, State] = {
        Event.PROCESS_STARTED: "starting",
        Event.LEARNING_STARTED: "learning",
        Event.HANG_NOTICED: "hung",
        Event.PROCESS_EXITED: "down",
    }
    return [(who, states[event.name])] if event.name in states else []


def _let_go(turns: list[tuple[float, State]], now: float) -> None:
    """Put a replica that hung back into the state that it was in before."""
    if len(turns) > 1 and turns[-1][1] == "hung":
        turns.append((now, turns[-2][1]))


def _spans(turns: Sequence[tuple[float, State]], end: float) -> tuple[Span, ...]:
    """Return spans from changes of state, adjacent equal ones joined."""
    spans: list[Span] = []
    for (start, state), (until, _) in itertools.pairwise([*turns, (end, "down")]):
        if spans and spans[-1].state == state:
            spans[-1] = replace(spans[-1], end=until)
        elif until > start or not spans:
            spans.append(Span(start, until, state))
    return tuple(s for s in spans if s.end > s.start)


def _lane_of_commits(record: RunRecord, replica: str) -> tuple[Span, ...]:
    """Guess a lane from a replica's ledger alone: a long gap means that it was not there."""
    own = record.by_replica.get(replica, [])
    if not own:
        return ()
    limit_s = max(1.0, 10.0 * usual_gap_s(own))
    turns: list[tuple[float, State]] = [(own[0].time, "member")]
    for start, end in gaps(own):
        if end - start > limit_s:
            turns += [(start, "down"), (end, "member")]
    return _spans(turns, own[-1].time)
