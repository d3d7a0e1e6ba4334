"""Who a run held to be at fault, and whether it was: accusations against the faults that struck.

Owns ``Accusation``, ``Blame``, ``accusations`` and ``blames``, pure functions of a ``RunRecord``.
An accusation is what a run acts on: whom it leaves behind, ends, replaces or has learn again.  Each
is put down to the newest fault that can have caused it; one that none can have caused is a wrong
one, and is put down to the fault before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from danaus.app.events import CONTROLLER, SERVICE, Event, FaultKind
from danaus.app.run_record import Happening, RunRecord, incarnation_of, replica_of
from danaus.app.timeline import Fault

_EVERYONE = (FaultKind.KILL_CONTROLLER, FaultKind.DISK_FULL)
"""Kinds that may bring down any process of the run: all that share its disk or its controller."""
_EVERYONE_S = 15.0
_BLAMED_S = 60.0
"""How long after a fault an accusation is put down to it."""

_MEMBER = r"([\w.-]+/\d+#\d+)"
_NAMED = (
    re.compile(rf"{_MEMBER} refused: its own share"),
    re.compile(rf"lost {_MEMBER}: damaged message"),
)
_DIFFER = re.compile(r"differ at rank \d+: (.*)")


@dataclass(frozen=True)
class Accusation:
    """Somebody is held to be at fault.

    Args:
        time: Seconds since 1970.
        whom: A replica, or ``"quorum service"``.
        incarnation: Of the process; None: unknown.
        words: What the journal says.
    """

    time: float
    whom: str
    incarnation: int | None
    words: str


@dataclass(frozen=True)
class Blame:
    """What came of one fault.

    Args:
        right: Accusations of its target.
        wrong: Those of somebody else, whom no fault had hit.
    """

    right: tuple[Accusation, ...] = ()
    wrong: tuple[Accusation, ...] = ()


def accusations(record: RunRecord) -> list[Accusation]:
    """Return everybody that was held to be at fault, in order of time."""
    found = []
    for event in record.events:
        for whom, incarnation in _accused(event):
            words = event.text("reason") or event.text("signal")
            found.append(
                Accusation(event.time, whom, incarnation, f"{event.name}: {words}".rstrip(": "))
            )
    return found


def blames(faults: Sequence[Fault], record: RunRecord) -> dict[int, Blame]:
    """Return by a fault's number who was blamed for it.

    Args:
        faults: In order of time.
        record: The run's.
    """
    found: dict[int, Blame] = {fault.number: Blame() for fault in faults}
    for each in accusations(record):
        before = [fault for fault in faults if fault.time <= each.time]
        if not before:
            continue
        guilty = next((fault for fault in reversed(before) if can_cause(fault, each)), None)
        if guilty is not None:
            old = found[guilty.number]
            found[guilty.number] = Blame((*old.right, each), old.wrong)
        else:
            old = found[before[-1].number]
            found[before[-1].number] = Blame(old.right, (*old.wrong, each))
    return found


def can_cause(fault: Fault, accusation: Accusation) -> bool:
    """Tell whether a fault explains that somebody is accused."""
    after_s = accusation.time - fault.time
    if fault.kind in _EVERYONE or fault.target == CONTROLLER:
        return 0 <= after_s <= _EVERYONE_S
    same = fault.incarnation in (None, accusation.incarnation) or accusation.incarnation is None
    return fault.target == accusation.whom and same and 0 <= after_s <= _BLAMED_S


def _accused(event: Happening) -> Iterable[tuple[str, int | None]]:
    tell = _ACCUSED.get(event.name)
    return tell(event) if tell is not None and not event.facts.get("expected") else ()


def _itself(event: Happening) -> Iterable[tuple[str, int | None]]:
    return ((event.replica, event.incarnation),)


def _service(_: Happening) -> Iterable[tuple[str, int | None]]:
    return ((SERVICE, None),)


def _minority(event: Happening) -> Iterable[tuple[str, int | None]]:
    return ((name, None) for name in event.names("minority"))


def _donor(event: Happening) -> Iterable[tuple[str, int | None]]:
    return ((replica_of(event.text("donor")), None),)


def _host(event: Happening) -> Iterable[tuple[str, int | None]]:
    """Return the replica that lives on a host: the one of its number."""
    number = re.match(r"host(\d+)", event.text("host"))
    return ((f"replica-{number[1]}", None),) if number else ()


def _in_words(event: Happening) -> Iterable[tuple[str, int | None]]:
    """Return who is named by the reason that a step was refused for, and not just left."""
    reason = event.text("reason")
    found = {name for pattern in _NAMED for name in pattern.findall(reason)}
    for differ in _DIFFER.findall(reason):
        holders = [part.partition(" at ")[2].split(", ") for part in differ.split("; ")]
        fewest = min(map(len, holders))
        if sum(len(each) == fewest for each in holders) == 1:
            found |= {name for each in holders if len(each) == fewest for name in each}
    return ((replica_of(name), incarnation_of(name)) for name in sorted(found))


_ACCUSED: Mapping[str, Callable[[Happening], Iterable[tuple[str, int | None]]]] = {
    Event.PROCESS_EXITED: _itself,
    Event.HANG_NOTICED: _itself,
    Event.REPLICA_FAILED: _itself,
    Event.SERVICE_EXITED: _service,
    Event.SERVICE_SILENT: _service,
    Event.DIVERGENCE_FOUND: _minority,
    Event.DONOR_FAILED: _donor,
    Event.HOST_LOST: _host,
    Event.STEP_DISCARDED: _in_words,
    Event.STEP_REFUSED: _in_words,
}
