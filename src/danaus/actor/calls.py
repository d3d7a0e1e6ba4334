"""Calling endpoints: what the caller's side of ``call``, ``call_one``, ``broadcast`` does.

Owns ``MeshEndpoint`` and the gathering of answers (A-4, A-5).  Answers are unpacked on the thread
that asks for them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from danaus.actor.attempt import Attempt
from danaus.actor.contexts import incarnation_of
from danaus.actor.endpoints import EndpointSpec
from danaus.actor.faces import Endpoint
from danaus.actor.failure import Fault
from danaus.actor.future import Future
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Link, Parts
from danaus.actor.owned import supervision_error
from danaus.actor.process_messages import Deliver, Raised
from danaus.actor.runtime import Runtime
from danaus.actor.value_mesh import Outcome, ValueMesh
from danaus.core.errors import ActorError, DeadlinePassed, MessageTooLarge
from danaus.core.extent import Region
from danaus.wire.codec import own, pack, unpack
from danaus.wire.frame import DEFAULT_MAX_FRAME_BYTES, Buffer

# The rest of a frame is for the message itself: names of the mesh, the sender, the endpoint.
MAX_ARGUMENT_BYTES = DEFAULT_MAX_FRAME_BYTES - 64 * 1024

P = ParamSpec("P")
R = TypeVar("R")
U = TypeVar("U")
Answer = Callable[[], Outcome[Any]]


@dataclass(frozen=True)
class Target:
    """The actors that a call goes to: a part of a mesh."""

    runtime: Runtime
    mesh_id: str
    name: str
    region: Region
    refs: tuple[ProcessRef, ...]

    @functools.cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks in the whole mesh, by rank of the part."""
        return self.region.base_ranks()

    @functools.cached_property
    def is_elsewhere(self) -> bool:
        """Tell whether any of them lives in another process."""
        mine = self.runtime.info.process_id
        return any(self.refs[rank].process_id != mine for rank in self.ranks)

    @functools.cached_property
    def receivers(self) -> tuple[str, ...]:
        """Who each of them is, to number messages by."""
        return tuple(f"{self.mesh_id}/{rank}" for rank in self.ranks)

    @functools.cached_property
    def incarnations(self) -> tuple[int, ...]:
        """The incarnation of each of them."""
        return tuple(incarnation_of(self.refs[rank].process_id) for rank in self.ranks)


@dataclass(frozen=True)
class Options:
    """How a call is made.  ``timeout_s`` None: as long as the actor lives (A-4)."""

    timeout_s: float | None = None


class MeshEndpoint(Endpoint[P, R]):
    """One endpoint of the actors of a mesh; what its methods do is said in ``faces.Endpoint``.

    Args:
        target: The actors.
        spec: What they declare.
        options: How calls are made.
    """

    def __init__(self, target: Target, spec: EndpointSpec, options: Options | None = None) -> None:
        self._target = target
        self._spec = spec
        self._options = options or Options()

    @property
    def name(self) -> str:
        return f"{self._target.name}.{self._spec.name}"

    def with_options(self, *, timeout_s: float | None = None) -> MeshEndpoint[P, R]:
        options = dataclasses.replace(self._options, timeout_s=timeout_s)
        return MeshEndpoint(self._target, self._spec, options)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        return self._ask(self._all_or_raise, args, kwargs)

    def settled(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[Outcome[R]]]:
        return self._ask(self._as_mesh, args, kwargs)

    def call_one(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        size = self._target.region.num_points
        if size != 1:
            raise ValueError(
                f"{self.name}.call_one() needs a mesh of exactly one actor, this one has {size}: "
                f"{self._target.region.extent}; slice it, or use call()"
            )
        return self._ask(lambda outcomes: outcomes[0].get(), args, kwargs)

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> None:
        self._post(own(self._packed(args, kwargs)), None)

    def _packed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Buffer]:
        """Return the arguments' parts, if they can be sent.

        What was given a number and is not sent would hold back all that is sent after it (A-1).
        """
        self._spec.check(args, kwargs)
        parts = pack((args, kwargs))
        size = sum(memoryview(part).nbytes for part in parts)
        if size > MAX_ARGUMENT_BYTES and self._target.is_elsewhere:
            raise MessageTooLarge(size, MAX_ARGUMENT_BYTES, "bytes")
        return parts

    def _ask(
        self,
        finish: Callable[[list[Outcome[R]]], U],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[U]:
        parts = self._packed(args, kwargs)
        gather = Gather(self._target, self._spec.name, self._options.timeout_s)

        def decode(answers: list[Answer]) -> U:
            return finish([answer() for answer in answers])

        future: Future[U] = Future(self.name, on_cancel=gather.cancel, decode=decode)
        gather.future = future
        self._post(parts, gather)
        return future

    def _post(self, parts: Parts, gather: Gather | None) -> None:
        target = self._target
        runtime = target.runtime
        context = runtime.context()
        sender = f"{runtime.info.process_id} {context.actor_key or 'client'}"
        # Numbers are given and messages handed over in one order.
        with runtime.sending:
            numbers = [runtime.numbering.next(sender, each) for each in target.receivers]
            runtime.io.post(self._send, parts, gather, (sender, numbers))

    def _send(self, parts: Parts, gather: Gather | None, numbered: tuple[str, list[int]]) -> None:
        target = self._target
        sender, numbers = numbered
        if gather is not None:
            gather.begin()
        for at, (rank, number) in enumerate(zip(target.ranks, numbers, strict=True)):

            def build(call: int, at: int = at, number: int = number) -> Deliver:
                rank, inc = target.ranks[at], target.incarnations[at]
                return Deliver(call, target.mesh_id, rank, inc, sender, number, self._spec.name)

            link = target.runtime.connections.link(target.refs[rank])
            pending = gather.point(at) if gather is not None else None
            call = link.post(build, parts, pending)
            if gather is not None:
                gather.posted(at, link, call)

    def _as_mesh(self, outcomes: list[Outcome[R]]) -> ValueMesh[Outcome[R]]:
        return ValueMesh(self._target.region.extent.region(), outcomes)

    def _all_or_raise(self, outcomes: list[Outcome[R]]) -> ValueMesh[R]:
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            raise ExceptionGroup(
                f"{self.name}: {len(errors)} of {len(outcomes)} actors failed", errors
            )
        return self._as_mesh(outcomes).map(lambda outcome: outcome.get())


class Gather:
    """Collects one answer from each point; on the connections' loop."""

    def __init__(self, target: Target, endpoint: str, timeout_s: float | None) -> None:
        self.future: Future[Any] | None = None
        self._target = target
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._answers: list[Answer | None] = [None] * target.region.num_points
        self._left = len(self._answers)
        self._posted: dict[int, tuple[Link, int]] = {}

    def begin(self) -> None:
        """Start the clock."""
        if self._timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire)

    def point(self, at: int) -> PointPending:
        """Return who waits for the answer of one point."""
        return PointPending(self, at)

    def posted(self, at: int, link: Link, call: int) -> None:
        """Learn how the call to one point can be cancelled."""
        if self._answers[at] is None:
            self._posted[at] = (link, call)
            if self.future is not None and self.future.done():
                link.cancel(call)

    def name_of(self, at: int) -> str:
        """Return the actor's name and place."""
        return f"{self._target.name}[{self._target.region.extent.point(at)}]"

    def answered(self, at: int, answer: Answer) -> None:
        """Take the answer of one point."""
        self._posted.pop(at, None)
        if self._answers[at] is not None:
            return
        self._answers[at] = answer
        self._left -= 1
        if self._left == 0:
            if self._timer is not None:
                self._timer.cancel()
            if self.future is not None:
                self.future.set_value(self._answers)

    def cancel(self) -> None:
        """Give up; from any thread."""
        self._target.runtime.io.post(self._cancel_posted)

    def _cancel_posted(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        posted, self._posted = self._posted, {}
        for link, call in posted.values():
            link.cancel(call)

    def _expire(self) -> None:
        posted = self._posted
        self._cancel_posted()
        for at in posted:
            late = DeadlinePassed(f"{self.name_of(at)}.{self._endpoint}", self._timeout_s or 0.0)
            self.answered(at, lambda late=late: Outcome(error=late))  # type: ignore[misc]


class PointPending:
    """Waits for one point's answer."""

    def __init__(self, gather: Gather, at: int) -> None:
        self._gather = gather
        self._at = at

    def returned(self, parts: Parts) -> None:
        """The endpoint returned."""
        self._gather.answered(self._at, lambda: _opened(parts))

    def raised(self, message: Raised, parts: Parts) -> None:
        """The endpoint raised."""
        self._gather.answered(self._at, lambda: Outcome(error=_actor_error(message, parts)))

    def gone(self, why: str, fault: Fault | None) -> None:
        """There is no such actor any more."""
        error = supervision_error(self._gather.name_of(self._at), why, fault)
        self._gather.answered(self._at, lambda: Outcome(error=error))


def _opened(parts: Parts) -> Outcome[Any]:
    value: Any = None
    with Attempt() as attempt:
        value = unpack(parts)
    return Outcome(value, attempt.error)


def _actor_error(message: Raised, parts: Parts) -> ActorError:
    error = ActorError(message.actor, message.endpoint, message.exception, message.traceback)
    if parts:
        with Attempt():
            error.__cause__ = unpack(parts)
    return error
