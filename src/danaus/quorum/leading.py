"""Keeping a lease, or waiting for one: the shell around ``quorum.lease``.

Owns the store's calls, each within a limit, and the clock: one that counts the time in which the
machine sleeps, so that whoever wakes up knows that its lease is over.  It decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from danaus.core.clock import BootClock, Clock
from danaus.quorum.lease import LeaseMachine
from danaus.quorum.lease_events import (
    Candidate,
    DiskHolds,
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
from danaus.quorum.lease_store import LeaseStore
from danaus.quorum.minutes import Minutes
from danaus.quorum.own_process import has_ended
from danaus.wire.owned_tasks import OwnedTasks

ANSWER_SHARE = 0.2
"""The part of a lease after which an answer of the store is not waited for any more."""
_RESIGN_LIMIT_S = 2.0
_log = logging.getLogger("danaus.quorum")


class LeaseKeeper:
    """The gate of one candidate (``quorum.gate.Gate``): open while it is certain that it leads.

    Args:
        me: This candidate.
        store: Where the lease lies.
        on_turn: Called when it begins to lead, or follows another.
        minutes: Where that is written down.
        clock: Counts the time that the machine sleeps.
    """

    def __init__(
        self,
        me: Candidate,
        store: LeaseStore,
        on_turn: Callable[[Lead | Follow], None],
        *,
        minutes: Minutes,
        clock: Clock | None = None,
    ) -> None:
        self._machine = LeaseMachine(me)
        self._store, self._on_turn, self._minutes = store, on_turn, minutes
        self._clock = clock or BootClock()
        self._limit_s = ANSWER_SHARE * me.lease_s
        self._tasks = OwnedTasks("lease")
        self._events: deque[Event] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._trouble = ""
        self._settled = asyncio.Event()
        self.on_open: Callable[[], None] = lambda: None

    # -- the gate ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Tell whether this candidate leads and nobody else can."""
        return self._machine.is_certain(self._clock.now())

    def covers(self, term: int) -> bool:
        """Tell whether the lease allows announcements in ``term``; else ask it to."""
        if not self._machine.covers(term):
            self._feed(TermWanted(term))
        return self._machine.covers(term)

    def saved(self) -> None:
        """Hear that this candidate's folder holds the last quorum."""
        self._feed(DiskHolds())

    # -- its life ---------------------------------------------------------------------------------

    @property
    def record(self) -> LeaseRecord | None:
        """What the store was last known to hold."""
        return self._machine.record

    @property
    def remaining_s(self) -> float:
        """For how long this candidate is still certain, in seconds; 0: it is not."""
        now = self._clock.now()
        return self._machine.certain_until - now if self._machine.is_certain(now) else 0.0

    @property
    def trouble(self) -> str:
        """Why the store cannot be asked; empty: it answers."""
        return self._trouble

    def start(self) -> None:
        """Begin to want the lease."""
        self._feed(TimeCame())

    async def resign(self) -> None:
        """Give the lease back, so that another need not wait for its end; never raises."""
        self._feed(Resigned())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(_RESIGN_LIMIT_S, 2 * self._limit_s)):
                while not self._machine.is_settled:
                    await self._settled.wait()
                    self._settled.clear()
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    # -- the machine ------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for order in self._machine.handle(self._events.popleft(), self._clock.now()):
                    self._carry_out(order)
        finally:
            self._busy = False
        self._settled.set()
        # That it closed for a while may have been noticed by nobody but the service.
        if self.is_open:
            self.on_open()

    def _carry_out(self, order: Instruction) -> None:
        if isinstance(order, WakeAt):
            if self._timer is not None:
                self._timer.cancel()
            loop = asyncio.get_running_loop()
            delay_s = max(0.001, order.at - self._clock.now())
            self._timer = loop.call_later(delay_s, self._feed, TimeCame())
        elif isinstance(order, Look):
            self._tasks.start(self._look(), "look")
        elif isinstance(order, Swap):
            self._tasks.start(self._swap(order), "swap")
        else:
            self._write_down(order)
            self._on_turn(order)

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                entry = await self._store.read()
        except OSError as error:
            self._failed(error)
            return
        record = entry.record
        self._answered()
        self._feed(Looked(entry, record is not None and has_ended(record.process)))

    async def _swap(self, order: Swap) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                entry = await self._store.swap(order.record, order.version)
        except OSError as error:
            self._failed(error)
            return
        self._answered()
        self._feed(Swapped(entry))

    # -- what is written down ---------------------------------------------------------------------

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or str(error) or f"no answer within {self._limit_s:g} s"
        if reason != self._trouble:
            self._trouble = reason
            _log.warning("the lease's store cannot be asked: %s", reason)
            self._minutes.note("lease_unreachable", reason=reason)
        self._feed(StoreFailed(reason))

    def _answered(self) -> None:
        if self._trouble:
            self._trouble = ""
            self._minutes.note("lease_reached_again")

    def _write_down(self, order: Lead | Follow) -> None:
        if isinstance(order, Lead):
            self._minutes.note("lease_taken", term=order.term, trusts_disk=order.trusts_disk)
        else:
            self._minutes.note("lease_followed", holder=order.holder, reason=order.reason)
