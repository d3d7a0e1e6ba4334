"""One actor in its process: its inbox, and where its code runs.

Plain code runs on a thread of the actor's own, ``async`` code on the process's loop for users'
code.  Whichever has handled a message answers it and takes the next, and while there is none a
worker's reads the connections (``wire.reading``).  Actors begin and end on the connections' loop.

Invariants:
    A-1: messages of one sender are handled in the order of their numbers.
    A-2: one message at a time; a concurrent endpoint starts in its turn and waits for nobody.
    A-6: an endpoint that raises leaves the actor alive.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from danaus.actor.attempt import Attempt, exits
from danaus.actor.contexts import Context, act_as, current
from danaus.actor.endpoints import EndpointSpec, undeclared
from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.hooks import Hooks
from danaus.actor.jobs import Jobs
from danaus.actor.links import Peer
from danaus.actor.ordering import HoldBack
from danaus.actor.portable import packed_exception
from danaus.actor.ports import PortTable
from danaus.actor.process_messages import Deliver, Gone, ProcessMessage, Raised, Returned
from danaus.actor.work import CodeHost, Work, constructor_of, fault_of, guarded, opened, packed
from danaus.wire.frame import Buffer

_REPEATED = "it has had this message before, and no longer knows its answer"


class CellHost(CodeHost, Protocol):
    """The process, as a cell sees it."""

    ports: PortTable

    def actor_failed(self, cell: ActorCell, fault: Fault, fatal: bool) -> None:
        """An endpoint raised with nobody waiting, or the constructor raised."""


class ActorCell:
    """One actor; methods without an underscore run on the connections' loop, except ``deliver``.

    Args:
        host: The process.
        context: Who the actor is; its ``actor`` is filled in once it exists.
        owner: Where its mesh's owner is reached.
    """

    def __init__(self, host: CellHost, context: Context, owner: Peer) -> None:
        self.context = context
        self.owner = owner
        self.gone_why = ""
        self._host = host
        self._instance: Any = None
        self._endpoints: dict[str, EndpointSpec] = {}
        self._has_concurrent = False
        self._lock = threading.Lock()  # of the following eight
        self._order: HoldBack[Work] = HoldBack()
        self._waiting: collections.deque[Work] = collections.deque()
        self._running: set[Work] = set()
        self._is_busy = True  # until the constructor has returned
        self._closing: Callable[[], None] | None = None
        self._closing_why = ""
        self._pausing: Callable[[], None] | None = None
        self._is_paused = False
        self._jobs: Jobs[Work | Callable[[], None] | None] = Jobs(host.idle_reading)
        self._hooks = Hooks(host, self._jobs.put)
        self._start_thread()

    def _start_thread(self) -> None:
        threading.Thread(target=self._run_jobs, name=self.name, daemon=True).start()

    @property
    def name(self) -> str:
        """Name and place, for messages."""
        return f"{self.context.actor_name}[{self.context.point}]"

    # -- birth ---------------------------------------------------------------------------------

    def construct(self, parts: Sequence[Buffer], call: int) -> None:
        """Make the instance; answer ``call`` and begin to take messages."""

        def job() -> None:
            with Attempt() as attempt:
                cls, args, kwargs = constructor_of(parts)
                self._instance = cls.__new__(cls)
                self._enter_context()
                self._instance.__init__(*args, **kwargs)
            if attempt.error is not None:
                fault = fault_of(attempt.error, self._host.wall_clock.now())
                self._host.io.post(self._not_constructed, call, fault)
            else:
                endpoints = dict(type(self._instance).__endpoints__)
                self._host.io.post(self._constructed, call, endpoints)

        self._jobs.put(job)

    def _enter_context(self) -> None:
        """Make every later job on the actor's thread run as this actor."""
        self.context = dataclasses.replace(self.context, actor=self._instance)
        act_as(self.context)

    def _constructed(self, call: int, endpoints: dict[str, EndpointSpec]) -> None:
        self._endpoints = endpoints
        self._has_concurrent = any(spec.concurrent for spec in endpoints.values())
        self.owner.send(Returned(call))
        with self._lock:
            self._is_busy = False
        self._pump()

    def _not_constructed(self, call: int, fault: Fault) -> None:
        self.refuse_all(f"its constructor raised {fault.reason}\n{fault.traceback}")
        self.owner.send(
            Raised(call, self.name, "__init__", fault.reason, fault.traceback),
            packed_exception(fault.exception),
        )
        self._host.actor_failed(self, fault, fatal=True)
        self.end_thread()

    # -- messages ------------------------------------------------------------------------------

    def deliver(self, messages: Sequence[tuple[Deliver, Sequence[Buffer]]], peer: Peer) -> None:
        """Take messages that arrived together; from whichever thread has read them."""
        refused: list[tuple[Work, str]] = []
        with self._lock:
            why = self.gone_why or (self._closing_why if self._closing is not None else "")
            for message, parts in messages:
                work = Work(message, parts, peer)
                if why:
                    self._order.skip(message.sender, message.number)
                    refused.append((work, why))
                elif self._order.is_due(message.sender, message.number):
                    self._waiting.append(work)
                elif message.call and self._order.is_past(message.sender, message.number):
                    refused.append((work, _REPEATED))
                else:
                    ready = self._order.accept(message.sender, message.number, work)
                    self._waiting.extend(ready)
        for work, why in refused:
            self._refuse(work, why)
        self._pump()

    def skip(self, sender: str, number: int) -> None:
        """Do not wait for messages that were refused before this actor was made.

        Before anything is delivered.
        """
        self._order.skip(sender, number)

    def cancel(self, peer: Peer, call: int) -> None:
        """Give up a message that waits or runs; a plain endpoint that runs goes on unheard."""
        with self._lock:
            works = [*self._waiting, *self._running]
        for work in works:
            if work.peer == peer and work.message.call == call:
                work.is_cancelled = True
                if work.task is not None:
                    self._host.user_loop.post(work.task.cancel)
        self._pump()

    def refuse_all(self, why: str) -> None:
        """Be gone: answer whatever waits, and all that comes, with ``Gone``."""
        with self._lock:
            self.gone_why = why
            waiting, self._waiting = list(self._waiting), collections.deque()
        for work in waiting:
            self._refuse(work, why)

    def _refuse(self, work: Work, why: str) -> None:
        if work.message.call:
            work.peer.send(Gone(work.message.call, self.name, why))

    def _pump(self, done: Work | None = None) -> Work | None:
        """Start what may start now; return what the actor's own thread is to go on with.

        Args:
            done: What has just ended, on the thread that this is.
        """
        own: Work | None = None
        with self._lock:
            if done is not None:
                self._running.discard(done)
                if done.spec is None or not done.spec.concurrent:
                    self._is_busy = False
            if self._waiting:
                for work in self._startable():
                    if done is not None and done.is_plain and work.is_plain:
                        own = work  # the only one: it keeps others from starting
                    else:
                        self._start(work)
            if self._closing is not None or self._pausing is not None:
                self._come_to_rest()
        return own

    def _come_to_rest(self) -> None:
        """Tell whoever waits for that that nothing runs any more; with ``_lock`` held."""
        if self._closing is not None and not (self._running or self._waiting):
            self._host.io.post(self._drained)
        if self._pausing is not None and not self._running:
            pausing, self._pausing = self._pausing, None
            self._host.io.post(pausing)

    def _startable(self) -> list[Work]:
        """Take what may start now from what waits; with ``_lock`` held."""
        ready: list[Work] = []
        while self._waiting and not self._is_paused:
            if self._is_busy and not self._has_concurrent:
                break
            work = self._waiting[0]
            if work.is_cancelled:  # it must not hold up what may start beside what runs
                self._waiting.popleft()
                continue
            name = work.message.endpoint
            spec = work.spec = self._endpoints.get(name) or undeclared(type(self._instance), name)
            if spec is None or not spec.concurrent:
                if self._is_busy:
                    break
                self._is_busy = True
            work.is_plain = spec is None or spec.is_plain
            self._waiting.popleft()
            self._running.add(work)
            ready.append(work)
        return ready

    def _drained(self) -> None:
        if (closing := self._closing) is not None:
            self.refuse_all(self._closing_why)
            self._closing = None
            closing()

    def _start(self, work: Work) -> None:
        spec = work.spec
        if spec is not None and spec.is_async:
            self._host.user_loop.post(self._start_task, work)
        elif work.is_plain:
            self._jobs.put(work)
        else:
            context = contextvars.copy_context()
            context.run(current.set, self.context)
            job = guarded(lambda: self._run_plain(work), self._host.process_should_end)
            name = f"{self.name}.{work.message.endpoint}"
            threading.Thread(target=context.run, args=(job,), name=name, daemon=True).start()

    def _finished(
        self, work: Work, answer: ProcessMessage | None, parts: Sequence[Buffer]
    ) -> Work | None:
        """Answer, and start what follows; return what the actor's own thread is to go on with.

        Args:
            work: What has run.
            answer: None: it returned ``parts``, if any; its port answers otherwise.
            parts: Of the answer.
        """
        call = work.message.call
        if call and not work.is_cancelled:
            if answer is not None:
                work.peer.send(answer, parts)
            elif parts:
                work.peer.answer(call, parts, more=bool(self._waiting))
        return self._pump(work)

    def _failed(self, work: Work, fault: Fault) -> Work | None:
        endpoint, call = work.message.endpoint, work.message.call
        if work.spec is not None and work.spec.explicit_port:
            call = call if self._host.ports.forget(work.peer, call) else 0  # answered before
        answer = Raised(call, self.name, endpoint, fault.reason, fault.traceback)
        following = self._finished(work, answer, packed_exception(fault.exception))
        if not call and not work.is_cancelled:
            self._host.io.post(self._host.actor_failed, self, fault, False)
        return following

    # -- running users' code -------------------------------------------------------------------

    def _run_plain(self, work: Work) -> Work | None:
        """Run a plain endpoint; return what the actor's own thread is to go on with."""
        parts: Sequence[Buffer] = ()
        if work.is_cancelled:
            return self._finished(work, None, parts)
        with Attempt() as attempt:
            method, args, kwargs = opened(work, self.context, self._host.ports)
            parts = packed(work, method(self._instance, *args, **kwargs))
        error = attempt.error
        return self._finished(work, None, parts) if error is None else self._ended(work, error)

    def _ended(self, work: Work, error: Exception) -> Work | None:
        """Have the error answered; return what the actor's own thread is to go on with."""
        fault = fault_of(error, self._host.wall_clock.now())
        if work.spec is None or not work.spec.explicit_port:
            return self._failed(work, fault)
        # What it has sent to its port goes by the connections' loop, and counts if it was before.
        self._host.io.post(self._failed_with_port, work, fault)
        return None

    def _failed_with_port(self, work: Work, fault: Fault) -> None:
        if (following := self._failed(work, fault)) is not None:
            self._jobs.put(following)

    def _start_task(self, work: Work) -> None:
        """Begin an ``async`` endpoint; on the loop for users' code, in order."""
        if (reading := self._host.idle_reading) is not None:
            reading.follow(self._host.user_loop.loop)
        context = contextvars.copy_context()
        context.run(current.set, self.context)
        context.run(self._host.user_loop.tasks.start, self._run_async(work), work.message.endpoint)

    async def _run_async(self, work: Work) -> None:
        # Known from here on only: a task that is cancelled before it runs would end unheard.
        work.task = asyncio.current_task()
        parts: Sequence[Buffer] = ()
        if work.is_cancelled:
            self._finished(work, None, parts)
            return
        with exits(self._host.process_should_end):
            with Attempt() as attempt:
                method, args, kwargs = opened(work, self.context, self._host.ports)
                parts = packed(work, await method(self._instance, *args, **kwargs))
            if attempt.error is None:
                self._finished(work, None, parts)
            else:
                self._ended(work, attempt.error)

    def _run_jobs(self) -> None:
        is_over = False
        while not is_over:  # once more where users' code has called ``sys.exit``
            with exits(self._host.process_should_end):
                is_over = self._run_all()

    def _run_all(self) -> bool:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, Work):
                following: Work | None = job
                while following is not None:
                    following = self._run_plain(following)
            else:
                job()
        return True

    # -- hooks and the end ---------------------------------------------------------------------

    def supervise(
        self, failure: MeshFailure, answered: Callable[[bool, Fault | None], None]
    ) -> None:
        """Run ``__supervise__`` beside whatever runs; ``answered`` is called on this loop."""
        self._hooks.run(
            self.context, "__supervise__", failure, then=lambda v, f: answered(bool(v), f)
        )

    def drain(self, then: Callable[[], None], why: str) -> None:
        """Take no new message (``why``), finish those at hand, then call ``then`` on this loop."""
        with self._lock:
            self._closing, self._closing_why = then, why
        self._pump()

    def clean_up(self, then: Callable[[Fault | None], None]) -> None:
        """Run ``__cleanup__`` and end the actor's thread; then call ``then`` on this loop."""

        def ended(_: Any, fault: Fault | None) -> None:
            self.end_thread()
            then(fault)

        self._hooks.run(self.context, "__cleanup__", None, then=ended)

    # -- beginning anew ------------------------------------------------------------------------

    def pause(self, then: Callable[[], None]) -> None:
        """Start nothing more; call ``then`` on this loop once nothing runs."""
        with self._lock:
            self._is_paused, self._pausing = True, then
        self._pump()

    def begin_again(self, parts: Sequence[Buffer], then: Callable[[], None]) -> None:
        """Clean up, call ``then``, and make another instance; what waits, waits for that."""

        def cleaned_up(_: Any, fault: Fault | None) -> None:
            then()
            with self._lock:
                self._is_busy, self._is_paused = True, False
            self.construct(parts, 0)

        self._hooks.run(self.context, "__cleanup__", None, then=cleaned_up)

    def revive(self, parts: Sequence[Buffer]) -> None:
        """Make an instance where none came to be, or it is gone."""
        with self._lock:
            self.gone_why, self._is_busy, self._is_paused = "", True, False
        self._start_thread()
        self.construct(parts, 0)

    def end_thread(self) -> None:
        """Let the actor's thread end once it has done what it was given."""
        self._jobs.put(None)
