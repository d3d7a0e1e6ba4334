"""Which of several candidates leads: a lease, as a pure machine.

Owns ``handle(event, now)``, which returns instructions.  ``quorum.leading`` carries them out on a
store with compare-and-set (``quorum.lease_store``); the simulation runs the same machine.

No two clocks are compared.  Who holds the lease counts from when it *asked* for its last renewal,
and is certain for ``HOLDER_SHARE`` of the lease.  Who waits counts from when it *first saw* that
renewal, which is later, and takes it for over after ``STANDBY_SHARE`` of the lease without another.
So long as one clock is not faster than another by as much as the two shares differ (a third), the
one has stopped before the other begins.  Beginning is a compare-and-set of what was seen: a renewal
in between lets it fail.

A holder that was stopped finds its time over when it goes on: its clock counts time asleep.  What
it had checked just before it was stopped may still leave it; so the lease is not what makes two
quorums impossible (``docs/design/quorum.md`` says what is), it keeps two services from talking.

Invariants:
    Q-1: each time that one begins to lead, it is under a term above that of the lease.
    Q-3: no two candidates are certain at the same time.
    Q-3: the disk of a candidate is trusted only where the last holder's state is known to be on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from danaus.quorum.lease_events import (
    Candidate,
    DiskHolds,
    Entry,
    Event,
    Follow,
    Instruction,
    Lead,
    LeaseRecord,
    Look,
    Looked,
    Resigned,
    StoreFailed,
    Swap,
    Swapped,
    TermWanted,
    TimeCame,
    WakeAt,
)

HOLDER_SHARE = 0.8
STANDBY_SHARE = 1.1
_RENEW_SHARE = 0.2
_RETRY_SHARE = 0.05
_LOOK_SHARE = 0.2


@dataclass(slots=True)
class LeaseMachine:
    """Decide whether this candidate leads.

    Args:
        me: This candidate.

    Attributes:
        leading: It leads, as far as it knows.
    """

    me: Candidate
    leading: bool = False
    _entry: Entry | None = None
    _seen_at: float = 0.0
    _held_once: bool = False
    _dead: bool = False
    _written_at: float = 0.0
    _busy: bool = False
    _asked_at: float = 0.0
    _asked: dict[int, float] = field(default_factory=dict)
    _look_at: float = 0.0
    _retry_at: float = 0.0
    _term: int = 0
    _led: int = 0
    _disk: str = ""
    _resigned: bool = False
    _told: str | None = None
    _out: list[Instruction] = field(default_factory=list)

    @property
    def record(self) -> LeaseRecord | None:
        """What the store is known to hold."""
        return self._entry.record if self._entry is not None else None

    @property
    def certain_until(self) -> float:
        """Until when nobody else can have begun to lead; of no meaning unless it leads."""
        return self._written_at + HOLDER_SHARE * self.me.lease_s

    @property
    def is_settled(self) -> bool:
        """Tell whether a candidate that has resigned holds nothing any more."""
        return not self._busy and not self._holds

    def is_certain(self, now: float) -> bool:
        """Tell whether this candidate leads, and nobody else can."""
        return self.leading and now < self.certain_until

    def covers(self, term: int) -> bool:
        """Tell whether the lease allows it to announce in ``term``."""
        return self._holds and self.record is not None and term <= self.record.term

    def handle(self, event: Event, now: float) -> tuple[Instruction, ...]:
        """Return what is to be done now that ``event`` has happened, in order.

        Args:
            event: What happened.
            now: Seconds on this candidate's clock; never falls, and counts time asleep.
        """
        self._out = []
        _HANDLERS[type(event)](self, event, now)
        if self.leading and now >= self._written_at + self.me.lease_s:
            self._stop("", f"its lease was not renewed for {now - self._written_at:.1f} s")
        if not self._busy and now >= self._retry_at:
            self._act(now)
        self._out.append(WakeAt(self._next_moment(now)))
        return tuple(self._out)

    # -- events -------------------------------------------------------------------------------

    def _looked(self, event: Looked, now: float) -> None:
        self._busy = False
        self._look_at = now + _LOOK_SHARE * self.me.lease_s
        entry, record = event.entry, event.entry.record
        if self._entry is None or entry.version != self._entry.version:
            self._see(entry, now)
            if self._holds:
                # A write of its own that it had given up: whoever else has seen it did so after
                # it was first asked for.
                number = record.number if record is not None else 0
                self._wrote(self._asked.get(number, now - self.me.lease_s), now)
            elif self.leading:
                self._stop(_address(record), "another has begun to lead")
            elif record is not None and record.holder and self._told != record.address:
                self._say(record.address, f"{record.address} leads")
            self._asked.clear()
        self._dead = event.holder_dead

    def _swapped(self, event: Swapped, now: float) -> None:
        self._busy = False
        if event.entry is None:
            self._look()  # who was faster?
            return
        self._see(event.entry, now)
        self._asked.clear()
        if self._holds:
            self._wrote(self._asked_at, now)
        elif self.leading:
            self._stop("", "it gave its lease back")

    def _see(self, entry: Entry, now: float) -> None:
        self._entry, self._seen_at, self._dead = entry, now, False
        self._held_once = self._held_once or entry.record is not None

    def _wrote(self, asked_at: float, now: float) -> None:
        """Count on a record of its own from when it asked for it."""
        record = self.record
        assert record is not None
        self._written_at = asked_at
        # What it led under before it has spent: a renewal that comes to pass late begins nothing.
        begins = not self.leading and not self._resigned and record.term > self._led
        if begins and now < self.certain_until:
            self.leading, self._told, self._led = True, None, record.term
            self._out.append(Lead(record.term, trusts_disk=bool(record.disk)))

    def _store_failed(self, _event: StoreFailed, now: float) -> None:
        self._busy = False
        self._retry_at = now + _RETRY_SHARE * self.me.lease_s

    def _term_wanted(self, event: TermWanted, _now: float) -> None:
        # No epoch is used twice, not even one that was never told: the next try is in a term above.
        self._term = max(self._term, event.term + 1)

    def _disk_holds(self, _event: DiskHolds, _now: float) -> None:
        self._disk = self.me.disk

    def _resign(self, _event: Resigned, _now: float) -> None:
        self._resigned = True

    def _time_came(self, _event: TimeCame, _now: float) -> None:
        """``handle`` does what is due."""

    # -- what is due --------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        record = self.record
        if self._resigned:
            if record is not None and self._holds:
                self._swap(msgspec.structs.replace(record, holder="", process=""), now)
        elif self.leading:
            if record is not None and now >= self._renew_at():
                term, disk = max(record.term, self._term), record.disk or self._disk
                self._swap(msgspec.structs.replace(record, term=term, disk=disk), now)
        elif self._entry is not None and now >= self._free_at():
            self._claim(now)
        elif now >= self._look_at:
            self._look()

    def _renew_at(self) -> float:
        record = self.record
        assert record is not None
        is_news = self._term > record.term or (not record.disk and bool(self._disk))
        return 0.0 if is_news else self._written_at + _RENEW_SHARE * self.me.lease_s

    def _free_at(self) -> float:
        """Return from when nobody can be certain of the lease any more."""
        record = self.record
        if record is None:  # nobody held it, or somebody took the record away
            waits = self._held_once or self.me.patient
            return self._seen_at + STANDBY_SHARE * self.me.lease_s if waits else 0.0
        over = not record.holder or self._holds or self._dead
        return 0.0 if over else self._seen_at + STANDBY_SHARE * record.lease_s

    def _claim(self, now: float) -> None:
        me, before = self.me, self.record
        trusts = before is None or (bool(before.disk) and before.disk == me.disk)
        self._disk = me.disk if trusts else ""
        self._term = (before.term if before is not None else 0) + 1
        number = before.number if before is not None else 0
        record = LeaseRecord(me.name, me.address, self._term, number, me.lease_s)
        self._swap(msgspec.structs.replace(record, disk=self._disk, process=me.process), now)

    def _swap(self, record: LeaseRecord, now: float) -> None:
        assert self._entry is not None
        number = record.number + 1
        self._busy, self._asked_at = True, now
        self._asked.setdefault(number, now)
        record = msgspec.structs.replace(record, number=number)
        self._out.append(Swap(record, self._entry.version))

    def _look(self) -> None:
        self._busy = True
        self._out.append(Look())

    def _stop(self, holder: str, reason: str) -> None:
        self.leading = False
        self._say(holder, reason)

    def _say(self, holder: str, reason: str) -> None:
        self._told = holder
        self._out.append(Follow(holder, reason))

    @property
    def _holds(self) -> bool:
        return self.record is not None and self.record.holder == self.me.name

    def _next_moment(self, now: float) -> float:
        """Return when something may be due that no event announces."""
        moments = [now + self.me.lease_s, self._retry_at]
        if self.leading:
            moments += [self._written_at + self.me.lease_s, self._renew_at()]
        elif not self._busy and not self._resigned:
            moments += [self._look_at] + ([self._free_at()] if self._entry is not None else [])
        return min(moment for moment in moments if moment > now)


def _address(record: LeaseRecord | None) -> str:
    return record.address if record is not None and record.holder else ""


_HANDLERS: dict[type, Callable[[LeaseMachine, Any, float], None]] = {
    Looked: LeaseMachine._looked,
    Swapped: LeaseMachine._swapped,
    StoreFailed: LeaseMachine._store_failed,
    TermWanted: LeaseMachine._term_wanted,
    DiskHolds: LeaseMachine._disk_holds,
    Resigned: LeaseMachine._resign,
    TimeCame: LeaseMachine._time_came,
}
