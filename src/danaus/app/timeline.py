"""What happened when: from a run's record to the story of each fault and each replica's lane.

Owns ``Fault``, ``Span``, ``faults`` and ``lanes``, pure functions of a ``RunRecord``.  All times
come from the clock of one machine.  The three durations of a fault are

    noticed after           from the fault to the first word that danaus knows of it
    survivors stalled for   the longest gap between two committed steps of a replica that was not
                            hit, less the usual gap, up to full strength again or the next fault
    back at full strength   from the fault to the first step that every replica commits again,
                            the one that was hit among them

and ``None`` where the record does not tell, or it did not happen.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from danaus.app.events import SERVICE, Event, FaultKind
from danaus.app.run_record import Commit, Happening, RunRecord, incarnation_of, replica_of

State = Literal["starting", "learning", "member", "hung", "down"]

_SHOWN_GAPS = 400
"""How many gaps before a fault make the usual gap."""

_WORDS = {
    FaultKind.KILL: "worker killed (SIGKILL)",
    FaultKind.HANG: "worker hung (SIGSTOP)",
    FaultKind.KILL_COORDINATOR: "quorum service killed (SIGKILL)",
    FaultKind.FLIP_BIT: "one bit of the parameters flipped",
    FaultKind.OUTSIDE: "ended from outside",
}


@dataclass(frozen=True)
class Fault:
    """One fault and what came of it.

    Args:
        number: From 1, in order of time.
        kind: See ``FaultKind``.
        target: The replica that was hit, or ``"quorum service"``.
        time: Seconds since 1970.
        step: Steps committed when it struck.
        text: Words for a person.
        incarnation: Of the process that was hit; None where it has none.
        moments: What followed, as (seconds after the fault, words).
    """

    number: int
    kind: FaultKind
    target: str
    time: float
    step: int
    text: str
    incarnation: int | None = None
    noticed_after_s: float | None = None
    stalled_s: float | None = None
    back_after_s: float | None = None
    moments: tuple[tuple[float, str], ...] = ()

    @property
    def title(self) -> str:
        """What happened to whom, in words."""
        return self.text if self.target in self.text else f"{self.target}: {self.text}"


@dataclass(frozen=True)
class Span:
    """A stretch of time in which a replica was in one state."""

    start: float
    end: float
    state: State


def usual_gap_s(commits: Sequence[Commit]) -> float:
    """Return the median time between two committed steps of one process, 0.0 if unknown."""
    gaps = [b - a for a, b in _gaps(commits)]
    return statistics.median(gaps[-_SHOWN_GAPS:]) if gaps else 0.0


def faults(record: RunRecord) -> tuple[Fault, ...]:
    """Return every fault of a run, those that danaus injected and those from outside."""
    found = [_injected(e) for e in record.events if e.name == Event.FAULT_INJECTED]
    found += _from_outside(record, found)
    found.sort(key=lambda f: f.time)
    times = [f.time for f in found]
    told = []
    for number, fault in enumerate(found, 1):
        until = next((t for t in times if t > fault.time), record.end + 1.0)
        told.append(_follow(record, replace(fault, number=number), until))
    return tuple(told)


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


# -- finding faults -------------------------------------------------------------------------


def _injected(event: Happening) -> Fault:
    try:
        kind = FaultKind(event.text("kind"))
    except ValueError:
        kind = FaultKind.OUTSIDE
    return Fault(
        number=0,
        kind=kind,
        # Of a host that is hit, the replica there is what is seen to suffer.
        target=event.text("replica") or event.text("target") or "unknown",
        time=event.time,
        step=0,
        text=event.text("text") or _WORDS.get(kind, kind.replace("_", " ")),
        incarnation=event.incarnation,
    )


def _from_outside(record: RunRecord, injected: Iterable[Fault]) -> list[Fault]:
    """Return a fault for each death that nobody asked for, one per incarnation."""
    known = list(injected)
    found = []
    for event in record.events:
        if event.name in _DEATHS and not event.facts.get("expected"):
            target, incarnation = _who(event)
            if not any(_explains(f, event) for f in known):
                known.append(_outside_fault(event, target, incarnation))
                found.append(known[-1])
    return found


def _explains(fault: Fault, event: Happening) -> bool:
    """Tell whether a death is that of the process that a known fault hit."""
    target, incarnation = _who(event)
    same = fault.incarnation is None or incarnation in (None, fault.incarnation)
    return same and fault.target == target and 0 <= event.time - fault.time <= _BLAMED_S


_BLAMED_S = 120.0
"""How long after a fault the death of its target is put down to it."""

_DEATHS = (Event.PROCESS_EXITED, Event.HANG_NOTICED, Event.SERVICE_EXITED)


def _outside_fault(event: Happening, target: str, incarnation: int | None) -> Fault:
    hung = event.name == Event.HANG_NOTICED
    still_s = (event.number("still_s") or 0.0) if hung else 0.0
    how = event.text("signal") or event.text("reason") or event.text("kind")
    words = "hung" if hung else "killed" if event.text("signal") else "ended"
    text = f"{words} from outside{f' ({how})' if how else ''}"
    return Fault(0, FaultKind.OUTSIDE, target, event.time - still_s, 0, text, incarnation)


def _who(event: Happening) -> tuple[str, int | None]:
    if event.name == Event.SERVICE_EXITED:
        return SERVICE, None
    return event.replica, event.incarnation


# -- following one fault ----------------------------------------------------------------------


def _follow(record: RunRecord, fault: Fault, next_fault: float) -> Fault:
    """Return the fault with what came of it; ``next_fault`` ends what it is blamed for."""
    moments = _moments(record, fault)
    noticed = next((t for t, _ in moments), None)
    back = _back(record, fault, noticed)
    last = record.end if back is None else back
    moments = [(t, words) for t, words in moments if t <= last]
    if back is not None and fault.target != SERVICE:
        moments.append((back, "first step with every replica again"))
    return replace(
        fault,
        step=max((c.step for c in record.commits if c.time <= fault.time), default=0),
        # The time of a death that nobody announced is that at which it was noticed.
        noticed_after_s=None if noticed in (None, fault.time) else noticed - fault.time,
        stalled_s=_stalled_s(record, fault, min(last, next_fault)),
        back_after_s=None if back is None else back - fault.time,
        moments=tuple((t - fault.time, words) for t, words in moments),
    )


def _follows(event: Happening, fault: Fault) -> bool:
    """Tell whether an event after the fault is about the fault."""
    if event.name in (Event.DIVERGENCE_FOUND, Event.STEP_DISCARDED):
        return fault.kind == FaultKind.FLIP_BIT
    if event.name == Event.SERVICE_RESTARTED:
        return fault.target == SERVICE
    target, incarnation = _who(event)
    if target != fault.target:
        return False
    if fault.incarnation is None or incarnation is None or fault.kind == FaultKind.FLIP_BIT:
        return True
    # Its death is told of the process that was hit, its return of a later one.
    dies = event.name in _DEATHS
    return incarnation == fault.incarnation if dies else incarnation > fault.incarnation


def _moments(record: RunRecord, fault: Fault) -> list[tuple[float, str]]:
    """Return what the journal tells of a fault, each thing once though each rank reports it."""
    told: dict[str, float] = {}
    for event in record.events:
        if event.time < fault.time:
            continue
        if event.name == Event.QUORUM_ANNOUNCED:
            words = _told_quorum(event, fault) if told else ""
        else:
            known = event.name in _TELL and _follows(event, fault)
            words = _TELL[event.name](event) if known else ""
        if words:
            told.setdefault(words, event.time)
    return [(time, words) for words, time in told.items()]


def _told_quorum(event: Happening, fault: Fault) -> str:
    """Return words for a quorum once the fault is known: the target is out of it, or in again."""
    if fault.target == SERVICE or fault.kind == FaultKind.FLIP_BIT or event.facts.get("hold"):
        return ""
    members = {replica_of(m): incarnation_of(m) for m in event.names("members")}
    if fault.target not in members:
        return "the others are a quorum without it"
    later = fault.incarnation is None or members[fault.target] > fault.incarnation
    return "it is a member again" if later else ""


def _told_exit(event: Happening) -> str:
    how = event.text("signal")
    if not how and event.facts.get("exit_code") is not None:
        how = f"exit code {event.text('exit_code')}"
    return f"its exit is known{f' ({how})' if how else ''}"


def _told_healing(event: Happening) -> str:
    size = event.number("bytes") or 0.0
    donors = ", ".join(sorted({replica_of(d) for d in event.names("donors")})) or "its peers"
    return f"it has learned step {event.text('step')} from {donors} ({size / 1e6:.1f} MB)"


_TELL: dict[str, Callable[[Happening], str]] = {
    Event.HANG_NOTICED: lambda e: f"it is taken for hung: {e.text('reason')}".rstrip(": "),
    Event.PROCESS_EXITED: _told_exit,
    Event.SERVICE_EXITED: _told_exit,
    Event.SERVICE_RESTARTED: lambda _: "the service answers again",
    Event.DIVERGENCE_FOUND: lambda e: f"fingerprints differ: {e.text('reason')}".rstrip(": "),
    Event.STEP_DISCARDED: lambda e: f"step {e.text('step')} is discarded at the vote",
    Event.PROCESS_STARTED: lambda e: f"it is started again (pid {e.text('pid')})",
    Event.LEARNING_STARTED: lambda e: f"it learns step {e.text('step')}",
    Event.HEALED: _told_healing,
    Event.RUN_RESUMED: lambda e: f"all go back to the checkpoint of step {e.text('step')}",
}


def _back(record: RunRecord, fault: Fault, noticed: float | None) -> float | None:
    """Return when every replica took part again, None if that never came."""
    if fault.target == SERVICE:
        again = (e for e in record.events if e.name == Event.SERVICE_RESTARTED)
        return next((e.time for e in again if e.time >= fault.time), None)
    if noticed is None:
        return None
    everyone = frozenset(record.replicas)
    for commit in record.by_replica.get(fault.target, ()):
        whole = not commit.members or commit.replicas >= everyone
        if commit.time > noticed and whole:
            old = [m for m in commit.members if replica_of(m) == fault.target]
            if fault.kind == FaultKind.FLIP_BIT or fault.incarnation is None:
                return commit.time
            if not old or min(map(incarnation_of, old)) > fault.incarnation:
                return commit.time
    return None


def _gaps(commits: Sequence[Commit]) -> list[tuple[float, float]]:
    times = [c.time for c in commits]
    return list(itertools.pairwise(times))


def _stalled_s(record: RunRecord, fault: Fault, until: float) -> float | None:
    """Return the longest gap of a survivor within the fault's time, less the usual gap."""
    longest = None
    for replica in record.replicas:
        own = record.by_replica.get(replica, [])
        if replica == fault.target or not own:
            continue
        usual_s = usual_gap_s([c for c in own if c.time <= fault.time])
        for start, end in _gaps(own):
            if start < until and end > fault.time:
                over_s = max(0.0, min(end, until) - start - usual_s)
                longest = over_s if longest is None else max(longest, over_s)
    return longest


# -- lanes ----------------------------------------------------------------------------------


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
    for start, end in _gaps(own):
        if end - start > limit_s:
            turns += [(start, "down"), (end, "member")]
    return _spans(turns, own[-1].time)
