"""One actor in its process: its inbox, and where its code runs.

Plain code runs on a thread of the actor's own, ``async`` code on the process's loop for users'
code.  The cell itself lives on the connections' loop and only hands over.

Invariants:
    A-1: messages of one sender are handled in the order of their numbers.
    A-2: one message at a time; a concurrent endpoint starts in its turn and waits for nobody.
    A-6: an endpoint that raises leaves the actor alive.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import functools
import inspect
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from danaus.actor.attempt import Attempt, exits
from danaus.actor.contexts import Context, current
from danaus.actor.endpoints import EndpointSpec, undeclared
from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Live, Peer
from danaus.actor.loop_thread import LoopThread
from danaus.actor.ordering import HoldBack
from danaus.actor.portable import packed_exception
from danaus.actor.ports import Port, PortTable, Reply
from danaus.actor.process_messages import Deliver, Gone, ProcessMessage, Raised, Returned
from danaus.core.clock import Clock
from danaus.wire.codec import own, pack, unpack
from danaus.wire.frame import Buffer


class CellHost(Protocol):
    """The process, as a cell sees it."""

    io: LoopThread
    wall_clock: Clock
    ports: PortTable

    @property
    def user_loop(self) -> LoopThread:
        """The loop for users' ``async`` code."""

    def actor_failed(self, cell: ActorCell, fault: Fault, fatal: bool) -> None:
        """An endpoint raised with nobody waiting, or the constructor raised."""

    def process_should_end(self, code: int) -> None:
        """An endpoint called ``sys.exit``."""


@dataclass(eq=False)
class Work:
    """One message on its way through the actor."""

    message: Deliver
    parts: Sequence[Buffer]
    peer: Peer
    spec: EndpointSpec | None = None
    is_cancelled: bool = False
    task: asyncio.Task[Any] | None = None


class ActorCell:
    """One actor; all methods run on the connections' loop.

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
        self._order: HoldBack[Work] = HoldBack()
        self._waiting: collections.deque[Work] = collections.deque()
        self._running: set[Work] = set()
        self._is_busy = True  # until the constructor has returned
        self._closing: Callable[[], None] | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_jobs, name=self.name, daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """Name and place, for messages."""
        return f"{self.context.actor_name}[{self.context.point}]"

    # -- birth ---------------------------------------------------------------------------------

    def construct(self, parts: Sequence[Buffer], call: int) -> None:
        """Make the instance; answer ``call`` and begin to take messages."""

        def job() -> None:
            with Attempt() as attempt:
                cls, args, kwargs = _constructor_of(parts)
                self._instance = cls.__new__(cls)
                self._enter_context()
                self._instance.__init__(*args, **kwargs)
            if attempt.error is not None:
                fault = _fault(self, "__init__", attempt.error)
                self._host.io.post(self._not_constructed, call, fault)
            else:
                self._host.io.post(
                    self._constructed, call, dict(type(self._instance).__endpoints__)
                )

        self._jobs.put(_guarded(job, self._host))

    def _enter_context(self) -> None:
        """Make every later job on the actor's thread run as this actor."""
        context = self.context
        self.context = Context(
            context.proc, context.actor_name, context.actor_key, self._instance, context.point
        )
        current.set(self.context)

    def _constructed(self, call: int, endpoints: dict[str, EndpointSpec]) -> None:
        self._endpoints = endpoints
        self.owner.send(Returned(call))
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

    def deliver(self, message: Deliver, parts: Sequence[Buffer], peer: Peer) -> None:
        """Take a message."""
        work = Work(message, parts, peer)
        if self.gone_why or self._closing is not None:
            self._refuse(work, self.gone_why or "it is being stopped")
            return
        for ready in self._order.accept(message.sender, message.number, work):
            self._waiting.append(ready)
        self._pump()

    def skip(self, sender: str, number: int) -> None:
        """Do not wait for messages that were refused before this actor was made."""
        self._order.skip(sender, number)

    def cancel(self, peer: Peer, call: int) -> None:
        """Give up a message that waits or runs; a plain endpoint that runs goes on unheard."""
        for work in [*self._waiting, *self._running]:
            if work.peer == peer and work.message.call == call:
                work.is_cancelled = True
                if work.task is not None:
                    self._host.user_loop.post(work.task.cancel)
        self._pump()

    def refuse_all(self, why: str) -> None:
        """Be gone: answer whatever waits, and all that comes, with ``Gone``."""
        self.gone_why = why
        waiting, self._waiting = list(self._waiting), collections.deque()
        for work in waiting:
            self._refuse(work, why)

    def _refuse(self, work: Work, why: str) -> None:
        if work.message.call:
            work.peer.send(Gone(work.message.call, self.name, why))

    def _pump(self) -> None:
        while self._waiting:
            work = self._waiting[0]
            if work.is_cancelled:  # it must not hold up what may start beside what runs
                self._waiting.popleft()
                continue
            name = work.message.endpoint
            spec = work.spec = self._endpoints.get(name) or undeclared(self._instance, name)
            concurrent = spec is not None and spec.concurrent
            if self._is_busy and not concurrent:
                return
            self._waiting.popleft()
            self._running.add(work)
            self._is_busy = self._is_busy or not concurrent
            self._start(work)
        if self._closing is not None and not self._running:
            closing, self._closing = self._closing, None
            self.refuse_all("it was stopped")
            closing()

    def _start(self, work: Work) -> None:
        spec = work.spec
        if spec is not None and spec.is_async:
            self._host.user_loop.post(self._start_task, work)
        elif spec is not None and spec.concurrent:
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._in_context, _guarded(lambda: self._run_plain(work), self._host)),
                name=f"{self.name}.{spec.name}",
                daemon=True,
            ).start()
        else:
            self._jobs.put(_guarded(lambda: self._run_plain(work), self._host))

    def _finished(self, work: Work, answer: ProcessMessage | None, parts: Sequence[Buffer]) -> None:
        self._running.discard(work)
        if work.spec is None or not work.spec.concurrent:
            self._is_busy = False
        if answer is not None and work.message.call and not work.is_cancelled:
            work.peer.send(answer, parts)
        self._pump()

    def _failed(self, work: Work, fault: Fault) -> None:
        endpoint, call = work.message.endpoint, work.message.call
        if work.spec is not None and work.spec.explicit_port:
            call = call if self._host.ports.forget(work.peer, call) else 0  # answered before
        answer = Raised(call, self.name, endpoint, fault.reason, fault.traceback)
        self._finished(work, answer, packed_exception(fault.exception))
        if not call and not work.is_cancelled:
            self._host.actor_failed(self, fault, fatal=False)

    # -- running users' code -------------------------------------------------------------------

    def _in_context(self, job: Callable[[], None]) -> None:
        current.set(self.context)
        job()

    def _run_plain(self, work: Work) -> None:
        if work.is_cancelled:
            self._host.io.post(self._finished, work, Returned(0), ())
            return
        parts: Sequence[Buffer] = ()
        with Attempt() as attempt:
            method, args, kwargs = self._opened(work)
            parts = own(pack(method(*args, **kwargs)))
        self._post_end(work, parts, attempt.error)

    def _post_end(self, work: Work, parts: Sequence[Buffer], error: Exception | None) -> None:
        if error is None and work.spec is not None and work.spec.explicit_port:
            self._host.io.post(self._finished, work, None, ())  # its port answers
        elif error is not None:
            self._host.io.post(self._failed, work, _fault(self, work.message.endpoint, error))
        else:
            self._host.io.post(self._finished, work, Returned(work.message.call), parts)

    def _start_task(self, work: Work) -> None:
        """Begin an ``async`` endpoint; on the loop for users' code, in order."""
        context = contextvars.copy_context()
        context.run(current.set, self.context)
        context.run(self._host.user_loop.tasks.start, self._run_async(work), work.message.endpoint)

    async def _run_async(self, work: Work) -> None:
        # Known from here on only: a task that is cancelled before it runs would end unheard.
        work.task = asyncio.current_task()
        if work.is_cancelled:
            self._host.io.post(self._finished, work, Returned(0), ())
            return
        parts: Sequence[Buffer] = ()
        with exits(self._host.process_should_end):
            with Attempt() as attempt:
                method, args, kwargs = self._opened(work)
                parts = own(pack(await method(*args, **kwargs)))
            self._post_end(work, parts, attempt.error)

    def _opened(self, work: Work) -> tuple[Callable[..., Any], Any, Any]:
        if work.spec is None:
            raise AttributeError(
                f"{self.context.actor_name} has no endpoint {work.message.endpoint!r}: "
                f"there are {sorted(self._endpoints)}"
            )
        args, kwargs = unpack(work.parts)
        if work.spec.explicit_port:
            args = (self._response_port(work), *args)
        return functools.partial(work.spec.function, self._instance), args, kwargs

    def _response_port(self, work: Work) -> Port[Any]:
        call = work.message.call
        reply = Reply(self.context.actor_key, self.name, work.message.endpoint, work.peer, call)
        number = self._host.ports.open_reply(reply)
        return Port(ProcessRef(self.context.proc.process_id, "", "", ""), number)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    # -- hooks and the end ---------------------------------------------------------------------

    def supervise(
        self, failure: MeshFailure, answered: Callable[[bool, Fault | None], None]
    ) -> None:
        """Run ``__supervise__`` beside whatever runs; ``answered`` is called on this loop."""
        self._run_hook("__supervise__", (failure,), lambda v, f: answered(bool(v), f))

    def drain(self, then: Callable[[], None]) -> None:
        """Take no new message, finish those at hand, then call ``then`` on this loop."""
        self._closing = then
        self._pump()

    def clean_up(self, then: Callable[[Fault | None], None]) -> None:
        """Run ``__cleanup__`` and end the actor's thread; then call ``then`` on this loop."""

        def ended(_: Any, fault: Fault | None) -> None:
            self.end_thread()
            then(fault)

        self._run_hook("__cleanup__", (None,), ended)

    def end_thread(self) -> None:
        """Let the actor's thread end once it has done what it was given."""
        self._jobs.put(None)

    def _run_hook(
        self, name: str, args: tuple[Any, ...], then: Callable[[Any, Fault | None], None]
    ) -> None:
        hook = getattr(self._instance, name, None)
        if hook is None:
            then(None, None)
            return
        on_loop = all(spec.is_async for spec in self._endpoints.values()) and self._endpoints
        if inspect.iscoroutinefunction(hook) or on_loop:
            # A plain hook of an actor that is async otherwise runs where its other code does.
            self._host.user_loop.start(self._hook_async(hook, args, then), name)
            return

        def job() -> None:
            current.set(self.context)
            value = None
            with Attempt() as attempt:
                value = hook(*args)
            self._host.io.post(then, value, _maybe_fault(self, name, attempt.error))

        if name == "__cleanup__":
            self._jobs.put(_guarded(job, self._host))
        else:
            # Not on the actor's thread: an endpoint may be running there, for hours.
            threading.Thread(target=_guarded(job, self._host), name=name, daemon=True).start()

    async def _hook_async(
        self,
        hook: Callable[..., Any],
        args: tuple[Any, ...],
        then: Callable[[Any, Fault | None], None],
    ) -> None:
        current.set(self.context)
        value = None
        with exits(self._host.process_should_end):
            with Attempt() as attempt:
                value = hook(*args)
                if inspect.isawaitable(value):
                    value = await value
            self._host.io.post(then, value, _maybe_fault(self, hook.__name__, attempt.error))


def _constructor_of(parts: Sequence[Buffer]) -> Any:
    first = parts[0]
    return first.value if isinstance(first, Live) else unpack(parts)


def _guarded(job: Callable[[], None], host: CellHost) -> Callable[[], None]:
    """Return ``job`` as run on a thread of ours: ``sys.exit`` there ends the process."""

    def run() -> None:
        with exits(host.process_should_end):
            job()

    return run


def _fault(cell: ActorCell, endpoint: str, error: Exception) -> Fault:
    """Return what an exception in users' code means, with its traceback from their frame on."""
    frames = error.__traceback__
    if frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return Fault(
        kind="exception",
        reason=f"{type(error).__name__}: {error}",
        exception=error,
        traceback=text,
        time_s=cell._host.wall_clock.now(),
    )


def _maybe_fault(cell: ActorCell, name: str, error: Exception | None) -> Fault | None:
    return None if error is None else _fault(cell, name, error)
