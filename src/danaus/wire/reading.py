"""Which thread reads a loop's connections: its own, or one that waits for what they bring.

Owns ``SharedReading``.  To hand what arrives from the thread that reads to the one that waits for
it costs waking that one, which often takes longer than everything else about a small message.  So
whoever has nothing to do but wait reads meanwhile (leader and followers): a thread that would
block, or another loop that is quick about it; whenever nobody does, the connections' own loop.

Where epoll is missing every loop reads its own connections.

Invariants:
    Arrivals wake one thread, and one thread at a time is among the connections' handlers.
    What a handler calls must not block: it is refused where it would wait for another message.
    A thread that reads no more has given the reading up; a loop that does none for ``LEASE_S``
    has lost it.
    Handlers run in a context of their own: they see nothing of who waits.

Source: the Leader/Followers pattern (Schmidt, O'Ryan, Pyarali, Kircher, Buschmann, 2000), with
the reading handed back to one owner instead of to the next follower.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from danaus.core.interrupts import HeldInterrupts, is_main_thread, is_undisturbed
from danaus.core.nudge import Nudge
from danaus.wire.own_loop import OwnLoop

_READABLE = 1  # EPOLLIN, which is missing where epoll is
_ENDS = (SystemExit, KeyboardInterrupt)
_LONGEST_POLL_S = 3600.0  # what epoll counts in has an end
LEASE_S = 0.05
"""So long a loop that was given the reading may be busy with something else."""
_NOTHING_HELD = HeldInterrupts()  # on every thread but the main one


class SharedReading:
    """The connections of the loop on which this is made; made by ``shared_reading``."""

    def __init__(self) -> None:
        self._own = OwnLoop()
        self._loop = self._own.loop
        self._pid = os.getpid()
        self._context = contextvars.Context()
        self._handling = threading.RLock()  # of whoever is among the handlers
        self._turn = threading.Lock()  # of what follows
        self._ready = _new_epoll()  # the connections, and the bell
        self._bell = Nudge()
        self._readers: dict[int, Callable[[], object]] = {self._bell.fileno(): self._quieten}
        self._ready.register(self._bell, _READABLE)
        self._leader = 0  # the thread that polls, where it is no loop
        self._held = _NOTHING_HELD  # while it does
        self._is_watched = False
        self._is_closed = False
        self._num_turns = 0  # of loops that have read
        self._look_again_at = 0.0
        self._stands: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Stand]
        self._stands = weakref.WeakKeyDictionary()
        self._at: _Stand | None = None
        self._next: _Stand | None = None  # after the thread that leads
        self._home = self._stands[self._loop] = self._new_stand(self._loop)
        self._move(self._home)

    # -- the connections -----------------------------------------------------------------------

    def add(self, fd: int, readable: Callable[[], object]) -> None:
        """Have ``readable()`` called, on whichever thread, for as long as there is something.

        Now and then it is called although another has just taken what there was.
        """
        with self._handling:
            self._readers[fd] = readable
            self._ready.register(fd, _READABLE)

    def remove(self, fd: int) -> None:
        """Call it no more: once this returns nobody is within it, but perhaps the caller."""
        with self._handling:
            if self._readers.pop(fd, None) is not None:
                self._ready.unregister(fd)

    @property
    def alone(self) -> contextlib.AbstractContextManager[object]:
        """What keeps every thread but this one out of the handlers."""
        return self._handling

    def close(self) -> None:
        """End; on the loop, once the connections are gone."""
        with self._handling, self._turn:
            self._is_closed = True
            self._move(None)
            if not self._leader:
                self._let_go()
            stands = list(self._stands.items())
        self.ring()
        for loop, stand in stands:
            if loop is self._loop:
                stand.leave(loop)
                continue
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(stand.leave, loop)

    def _let_go(self) -> None:
        self._ready.close()
        self._bell.close()

    # -- a thread that waits -------------------------------------------------------------------

    def lead(self, is_over: Callable[[], bool], *, limit_s: float | None = None) -> None:
        """Read on this thread until ``is_over()``, if that can be done now.

        It may return early, or at once: the caller looks, and waits for the rest in another way.
        Whoever makes it true from another thread calls ``ring`` afterwards.

        Args:
            is_over: What the caller waits for.
            limit_s: Seconds to wait at most.

        Raises:
            KeyboardInterrupt: Not from within a handler.
        """
        leader = self._leader
        if _here.is_handling or self._pid != os.getpid():
            return
        if leader:
            if leader == threading.get_ident():
                # Called by what the collector runs, say: the wait below this one goes on later.
                self._poll_until(is_over, limit_s)
        elif not is_main_thread():
            self._lead(_NOTHING_HELD, is_over, limit_s)
        elif is_undisturbed():
            with HeldInterrupts(self._bell.give) as held:
                self._lead(held, is_over, limit_s)

    def _lead(
        self, held: HeldInterrupts, is_over: Callable[[], bool], limit_s: float | None
    ) -> None:
        me = threading.get_ident()
        try:
            with self._turn:
                if self._leader or self._is_closed:
                    return
                self._leader, self._held = me, held
                self._move(None)
            self._poll_until(is_over, limit_s)
        finally:
            if self._leader == me:
                self._end_lead()

    def _poll_until(self, is_over: Callable[[], bool], limit_s: float | None) -> None:
        until_s = None if limit_s is None else time.monotonic() + limit_s
        left_s, held = None, self._held
        while not (is_over() or held.is_interrupted or self._is_closed):
            if until_s is not None:
                left_s = min(until_s - time.monotonic(), _LONGEST_POLL_S)
                if left_s <= 0:
                    break
            self._handle(self._ready.poll(left_s))

    def lead_idly(self, is_idle: Callable[[], bool]) -> None:
        """Read on this thread, never the main one, while it ``is_idle()`` and no loop would.

        Otherwise as ``lead``, in fewer steps: an actor takes them with every message.
        """
        if self._pid != os.getpid():
            return
        with self._turn:
            if self._leader or self._is_closed:
                return
            self._leader, self._held = threading.get_ident(), _NOTHING_HELD
            self._move(None)
        try:
            poll = self._ready.poll
            while is_idle() and self._next is None and not self._is_closed:
                self._handle(poll())
        finally:
            self._end_lead()

    def _end_lead(self) -> None:
        with self._turn:
            self._leader = 0
            if self._is_closed:
                self._let_go()
            else:
                self._move(self._next or self._home)
            self._next = None

    def ring(self) -> None:
        """Have the thread that leads look whether it is over; from any thread."""
        if self._leader in (0, threading.get_ident()) or self._pid != os.getpid():
            return
        with self._turn:  # nobody writes to a descriptor that is another file's by then
            if self._leader:
                self._bell.give()

    def _quieten(self) -> None:
        with self._turn:
            # What was rung before somebody leads, that one sees without a bell.
            if not self._leader or self._leader == threading.get_ident():
                self._bell.take()

    # -- a loop that waits ---------------------------------------------------------------------

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the running loop read from now on; a thread that leads goes before.

        It keeps the reading while it is quick about it: see ``LEASE_S``.
        """
        stand = self._stands.get(loop)
        if stand is None or self._at is not stand:
            if self._pid != os.getpid() or not is_undisturbed():
                return
            with HeldInterrupts():
                self._plug_in(stand or self._new_stand(loop), loop)
        _here.reading = self

    def _plug_in(self, stand: _Stand, loop: asyncio.AbstractEventLoop) -> None:
        with self._turn:
            self._stands[loop] = stand
            if self._leader:
                self._next = stand
            elif not self._is_closed:
                self._move(stand)
        if self._is_closed and stand is not self._home:
            stand.leave(loop)

    def give_back(self) -> None:
        """Have the connections' loop read, where a loop of this thread was to."""
        if self._pid == os.getpid():
            with HeldInterrupts(), self._turn:
                self._next = None
                if not (self._leader or self._is_closed):
                    self._move(self._home)

    def _new_stand(self, loop: asyncio.AbstractEventLoop) -> _Stand:
        stand = _Stand()
        try:
            # In a context of its own: the loop keeps it, and calls from there.
            self._context.copy().run(loop.add_reader, stand.epoll.fileno(), self._loop_reads)
        except NotImplementedError:  # not every loop can
            return self._home
        return stand

    def _loop_reads(self) -> None:
        self._num_turns += 1
        _here.is_reading = True
        try:
            with HeldInterrupts(), self._handling:
                if self._may_be_disturbed():
                    self.give_back()
                elif not self._is_closed:
                    self._handle(self._ready.poll(0))
        finally:
            _here.is_reading = False
            _call_all_after(_here.after)

    def _may_be_disturbed(self) -> bool:
        """Look now and then whether somebody has set a handler of a signal since."""
        now = time.monotonic()
        if self._at is self._home or now < self._look_again_at:
            return False
        self._look_again_at = now + LEASE_S
        return not is_undisturbed()

    def _watch(self, num_turns: int) -> None:
        """Take the reading back from a loop that has done none since the last look."""
        with self._turn:
            if self._at is None or self._at is self._home or self._is_closed:
                self._is_watched = False
            elif self._num_turns == num_turns:
                self._move(self._home)
                self._is_watched = False
            else:
                self._loop.call_later(LEASE_S, self._watch, self._num_turns)

    # -- both ----------------------------------------------------------------------------------

    def _move(self, to: _Stand | None) -> None:
        """Have the connections wake who is at ``to``; with ``_turn`` held."""
        if self._at is to:
            return
        if self._at is not None:
            self._at.epoll.unregister(self._ready)
        if to is not None:
            to.epoll.register(self._ready, _READABLE)
            if to is not self._home and not self._is_watched:
                self._is_watched = True
                self._own.soon(self._watch, -1)
        self._at = to

    def _handle(self, events: list[tuple[int, int]]) -> None:
        with self._handling:
            _here.is_handling = True
            try:
                self._context.copy().run(self._call_readers, events)
            except BaseException as error:
                if self._own.is_current or isinstance(error, _ENDS):
                    raise
                # The thread that reads waits for something else: it is told nothing of this.
                self._own.soon(_raise, error)
            finally:
                _here.is_handling = False

    def _call_readers(self, events: list[tuple[int, int]]) -> None:
        for fd, _ in events:
            readable = self._readers.get(fd)
            if readable is not None:
                readable()


class _Here(threading.local):
    """What a thread knows of its part in reading."""

    def __init__(self) -> None:
        self.reading: SharedReading | None = None  # that a loop of this thread was given last
        self.is_handling = False  # it is among the handlers
        self.is_reading = False  # a loop of this thread, in this turn
        self.after: collections.deque[Callable[[], object]] = collections.deque()


_here = _Here()


def is_handling_here() -> bool:
    """Tell whether this thread is among the handlers of what it reads: it must not block."""
    return _here.is_handling


def soon_here(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function on the running loop: as soon as it has read, if it is reading, else soon."""
    if _here.is_reading:
        _here.after.append(function)
    else:
        loop.call_soon(function)


def _call_all_after(after: collections.deque[Callable[[], object]]) -> None:
    try:
        while after:
            after.popleft()()
    finally:
        if after:  # one of them has raised, which the loop's handler is told
            asyncio.get_running_loop().call_soon(_call_all_after, after)


def about_to_block() -> None:
    """Give back what a loop of this thread was to read: the thread waits for something else."""
    reading, _here.reading = _here.reading, None
    if reading is not None:
        reading.give_back()


class _Stand:
    """Where the connections wake a loop, while they are registered here."""

    def __init__(self) -> None:
        self.epoll = _new_epoll()

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be gone, on its loop."""
        if not self.epoll.closed:
            loop.remove_reader(self.epoll.fileno())
            self.epoll.close()


def _raise(error: BaseException) -> None:
    raise error


def shared_reading() -> SharedReading | None:
    """Return what shares the running loop's reading; None where epoll is missing."""
    return SharedReading() if hasattr(select, "epoll") else None


def _new_epoll() -> Any:
    return select.epoll() if hasattr(select, "epoll") else None
