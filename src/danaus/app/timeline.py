"""What happened when: from a run's record to the story of each fault.

Owns ``Fault`` and ``faults``, pure functions of a ``RunRecord``.  All times come from the clock of
one machine.  The three durations of a fault are

    noticed after           from the fault to the first word that danaus knows of it
    survivors stalled for   the longest time in which no replica but the one that was hit committed
                            a step, less the usual gap, up to full strength again or the next fault
    back at full strength   from the fault to the first step that every replica commits again,
                            the one that was hit among them

and ``None`` where the record does not tell, or it did not happen.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from danaus.app.events import CONTROLLER, SERVICE, Event, FaultKind
from danaus.app.run_record import Commit, Happening, RunRecord, incarnation_of, replica_of

_LONGEST_STEP_S = 60.0
_LAST = 64
"""So many commits of all processes hold the newest step."""
_BITS = (FaultKind.FLIP_BIT, FaultKind.NAN)
"""Kinds that a process survives: it learns its state again."""
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


def usual_gap_s(commits: Sequence[Commit]) -> float:
    """Return the median time between two committed steps of one process, 0.0 if unknown."""
    newest = [b - a for a, b in gaps(commits[-_SHOWN_GAPS - 1 :])]
    return statistics.median(newest) if newest else 0.0


def faults(record: RunRecord) -> tuple[Fault, ...]:
    """Return every fault of a run, those that danaus injected and those from outside."""
    # Written down before it strikes, a fault may still find that its victim is gone.
    missed = {e.text("fault") for e in record.events if e.name == Event.FAULT_MISSED} - {""}
    struck = (e for e in record.events if e.name == Event.FAULT_INJECTED)
    found = [_injected(e, record) for e in struck if e.text("fault") not in missed]
    found += _from_outside(record, found)
    found.sort(key=lambda f: f.time)
    told = []
    for number, fault in enumerate(found, 1):
        later = [f for f in found[number:] if f.time > fault.time]
        # What the same victim suffers after it was struck again is that fault's.
        again = next((f.time for f in later if f.target in (fault.target, CONTROLLER)), record.end)
        until = later[0].time if later else record.end + 1.0
        told.append(_follow(record, replace(fault, number=number), until, again=again))
    return tuple(told)


# -- finding faults -------------------------------------------------------------------------


def _injected(event: Happening, record: RunRecord) -> Fault:
    try:
        kind = FaultKind(event.text("kind"))
    except ValueError:
        kind = FaultKind.OUTSIDE
    return Fault(
        number=0,
        kind=kind,
        # Of a host that is hit, the replica there is what is seen to suffer.
        target=event.text("replica")
        or _at_host(event, record)
        or event.text("target")
        or "unknown",
        time=event.time,
        step=0,
        text=event.text("text") or _WORDS.get(kind, kind.replace("_", " ")),
        incarnation=event.incarnation,
    )


def _at_host(event: Happening, record: RunRecord) -> str:
    """Return the replica that lived on the host that an event names, if it names one."""
    host, found = event.text("target"), ""
    for each in record.events if host.startswith("host") else ():
        if each.time > event.time:
            break
        if each.name == Event.PROCESS_STARTED and each.text("process_id").startswith(f"{host}/"):
            found = each.replica
    return found


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


def _follow(record: RunRecord, fault: Fault, next_fault: float, *, again: float) -> Fault:
    """Return the fault with what came of it.

    ``next_fault`` ends what it is blamed for, ``again`` what is put down to it at all.
    """
    moments = _moments(record, fault)
    noticed = next((t for t, _ in moments if t <= again), None)
    back = _back(record, fault, noticed)
    last = record.end if back is None else back
    moments = [(t, words) for t, words in moments if t <= last]
    if back is not None and fault.target != SERVICE:
        moments.append((back, "first step with every replica again"))
    return replace(
        fault,
        step=max((c.step for c in _before(record.commits, fault.time)[-_LAST:]), default=0),
        # The time of a death that nobody announced is that at which it was noticed.
        noticed_after_s=None if noticed in (None, fault.time) else noticed - fault.time,
        stalled_s=_stalled_s(record, fault, min(last, next_fault)),
        back_after_s=None if back is None else back - fault.time,
        moments=tuple((t - fault.time, words) for t, words in moments),
    )


def _follows(event: Happening, fault: Fault) -> bool:
    """Tell whether an event after the fault is about the fault."""
    if event.name in (Event.DIVERGENCE_FOUND, Event.STEP_DISCARDED):
        return fault.kind in _BITS
    if event.name == Event.SERVICE_RESTARTED:
        return fault.target == SERVICE
    if event.name in (Event.RUN_STARTED, Event.RUN_ADOPTED):
        return fault.kind == FaultKind.KILL_CONTROLLER
    target, incarnation = _who(event)
    if target != fault.target:
        return False
    if fault.incarnation is None or incarnation is None or fault.kind in _BITS:
        return True
    # Its death is told of the process that was hit, its return of a later one.
    dies = event.name in (*_DEATHS, Event.LEAVE_ASKED, Event.REPLICA_LEFT)
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
    if fault.target == SERVICE or fault.kind in _BITS or event.facts.get("hold"):
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


def _told_rank(event: Happening) -> str:
    rank, size = event.text("rank"), (event.number("bytes") or 0.0) / 1e6
    if event.text("what") == "state":
        return f"its rank {rank} has learned step {event.text('step')} ({size:.1f} MB)"
    steps = event.number("steps") or 0.0
    what = "1 step" if steps == 1 else f"{steps:.0f} steps"
    return f"its rank {rank} has taken the gradients of {what} ({size:.1f} MB)" if steps else ""


_TELL: dict[str, Callable[[Happening], str]] = {
    Event.RUN_STARTED: lambda _: "the run is begun again by another controller",
    Event.RUN_ADOPTED: lambda _: "another controller goes on with what lives",
    Event.HANG_NOTICED: lambda e: f"it is taken for hung: {e.text('reason')}".rstrip(": "),
    Event.PROCESS_EXITED: _told_exit,
    Event.SERVICE_EXITED: _told_exit,
    Event.LEAVE_ASKED: lambda _: "it is to leave after the step in hand",
    Event.REPLICA_LEFT: lambda e: f"it has left after step {e.text('step')}",
    Event.SERVICE_RESTARTED: lambda _: "the service answers again",
    Event.DIVERGENCE_FOUND: lambda e: f"fingerprints differ: {e.text('reason')}".rstrip(": "),
    Event.STEP_DISCARDED: lambda e: f"step {e.text('step')} is discarded at the vote",
    Event.PROCESS_STARTED: lambda e: f"it is started again (pid {e.text('pid')})",
    Event.RANK_REPAIRED: lambda e: (
        f"its rank {e.text('rank')} is replaced, what is left of it has kept its state"
    ),
    Event.RANK_NOT_REPAIRED: lambda e: f"all of it is started again: {e.text('reason')}",
    Event.RANK_HEALED: _told_rank,
    Event.LEARNING_STARTED: lambda e: (
        f"it learns step {e.text('step')}" + " while the others go on" * bool(e.facts.get("trails"))
    ),
    Event.HEALED: _told_healing,
    Event.CAUGHT_UP: lambda e: (
        f"it has applied what the others took meanwhile, up to step {e.text('step')}"
        if e.number("steps")
        else ""
    ),
    Event.RUN_RESUMED: lambda e: f"all go back to the checkpoint of step {e.text('step')}",
}


def _back(record: RunRecord, fault: Fault, noticed: float | None) -> float | None:
    """Return when every replica took part again, None if that never came."""
    if noticed is None:
        return None
    if fault.target == SERVICE:
        again = (e for e in record.events if e.name == Event.SERVICE_RESTARTED)
        return next((e.time for e in again if e.time >= fault.time), None)
    everybody = fault.kind == FaultKind.KILL_CONTROLLER
    own = record.commits if everybody else record.by_replica.get(fault.target, [])
    for commit in own[len(_before(own, noticed)) :]:
        whole = not commit.members or commit.replicas >= record.wanted_at(commit.time)
        if whole:
            old = [m for m in commit.members if replica_of(m) == fault.target]
            if fault.kind in _BITS or fault.incarnation is None:
                return commit.time
            if not old or min(map(incarnation_of, old)) > fault.incarnation:
                return commit.time
    return None


def _before(commits: Sequence[Commit], moment: float) -> Sequence[Commit]:
    """Return the commits up to a moment, of those in order of time."""
    return commits[: bisect.bisect_right(commits, moment, key=lambda c: c.time)]


def gaps(commits: Sequence[Commit]) -> list[tuple[float, float]]:
    """Return the times between which nothing was committed, one pair for each two steps."""
    times = [c.time for c in commits]
    return list(itertools.pairwise(times))


def _stalled_s(record: RunRecord, fault: Fault, until: float) -> float | None:
    """Return the longest time within the fault's in which no survivor committed, less the usual."""
    until = min(until, record.commits[-1].time) if record.commits else until
    first = len(_before(record.commits, fault.time - _LONGEST_STEP_S))
    around = _before(record.commits, until)[first:]
    times = [commit.time for commit in around if commit.replica != fault.target]
    if not times:
        return None
    usual_s = max(usual_gap_s(_before(each, fault.time)) for each in record.by_replica.values())
    over_s = [
        end - max(start, fault.time - usual_s) - usual_s
        for start, end in itertools.pairwise((*times, until))
        if end > fault.time
    ]
    return max(0.0, *over_s) if over_s else None
