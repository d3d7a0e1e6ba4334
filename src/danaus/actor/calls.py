"""Calling endpoints: what the caller's side of ``call``, ``call_one``, ``broadcast`` does.

Owns ``MeshEndpoint``.  How answers are gathered is ``gathers``' work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar, cast, overload

from danaus.actor.casting import Casting
from danaus.actor.endpoints import (
    Actor,
    EndpointSpec,
    Propagator,
    undeclared,
    undeclared_name,
)
from danaus.actor.faces import Endpoint
from danaus.actor.future import Future
from danaus.actor.gathers import (
    AllAnswers,
    Answer,
    Gather,
    Gathering,
    OneAnswer,
    PortGather,
    StreamGather,
)
from danaus.actor.links import NOT_SENT, Parts
from danaus.actor.ports import Port
from danaus.actor.process_runtime import get_runtime, public_refs
from danaus.actor.replies import Replies
from danaus.actor.targets import UNLIMITED, Options, Target, Way
from danaus.actor.value_mesh import Outcome, ValueMesh
from danaus.core.errors import ConfigError, MessageTooLarge
from danaus.core.interrupts import HeldInterrupts
from danaus.wire.codec import own, pack_call
from danaus.wire.frame import DEFAULT_MAX_FRAME_BYTES, Buffer

# The rest of a frame is for the message itself: names of the mesh, the sender, the endpoint.
MAX_ARGUMENT_BYTES = DEFAULT_MAX_FRAME_BYTES - 64 * 1024

P = ParamSpec("P")
R = TypeVar("R")
U = TypeVar("U")
Selection = Literal["all", "choose"]


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
        self._options = options or UNLIMITED
        self._name = f"{target.name}.{spec.name}"

    @property
    def name(self) -> str:
        return self._name

    def __reduce__(self) -> tuple[Any, ...]:
        target = self._target
        facts = (target.mesh_id, target.name, target.region, public_refs(target.refs))
        made = functools.partial(_endpoint, options=self._options)
        return made, (target.cls, facts, self._spec.name)

    def with_options(
        self, *, timeout_s: float | None = None, retries: int = 0
    ) -> MeshEndpoint[P, R]:
        if retries and not self._spec.idempotent:
            raise ConfigError(
                what=f"{self.name} cannot be retried",
                needed="an endpoint that is declared with idempotent=True",
                to_do="declare it so if to run it twice is as good as once",
            )
        return MeshEndpoint(self._target, self._spec, Options(timeout_s, retries))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        return self._ask(self._all_or_raise, args, kwargs)

    def settled(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[Outcome[R]]]:
        return self._ask(self._as_mesh, args, kwargs)

    def call_one(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        size = len(self._target.ranks)
        if size != 1:
            raise ValueError(
                f"{self.name}.call_one() needs a mesh of exactly one actor, this one has {size}: "
                f"{self._target.region.extent}; slice it, or use call()"
            )
        if self._options is not UNLIMITED:
            return self._ask(lambda outcomes: outcomes[0].get(), args, kwargs)
        # What ``_ask`` does for any number, in the fewest steps for one: this call is waited for.
        parts = self._packed(args, kwargs)
        answer = OneAnswer(self._target, self._name)
        runtime = self._target.runtime
        (way,) = self._target.ways(self._spec.name, runtime.context().actor_key)
        link = way.link
        call = (
            NOT_SENT if link is None else link.submit(way.key, parts, answer, numbers=way.numbers)
        )
        if link is None or call == NOT_SENT:
            self._post_one(way, parts, answer)
        else:
            answer.posted(0, link, call)
        return answer

    def choose(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        self._spec.check(args, kwargs)
        target = self._target
        at = target.choice.take(target.may_live)
        one: MeshEndpoint[P, R] = MeshEndpoint(target.one(at), self._spec, self._options)
        future: Future[R] | None = None
        try:
            future = one.call_one(*args, **kwargs)
            future.add_done_callback(lambda _: target.choice.give_back(at))
        finally:
            if future is None:  # it could not be sent
                target.choice.give_back(at)
        return future

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Replies[R]:
        parts = self._packed(args, kwargs)
        gather = StreamGather(self._target, self._spec.name, self._options)
        self._post(parts, gather)
        return Replies(gather.futures)

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> None:
        self._post(self._packed(args, kwargs), None)

    def send(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        port: Port[R] | None,
        *,
        selection: Selection,
    ) -> None:
        """Do what ``send`` says."""
        parts, target = own(self._packed(args, kwargs)), self._target
        if selection == "choose":
            at = target.choice.take(target.may_live)
            target.choice.give_back(at)  # nobody here hears of the answer
            target = target.one(at)
        gather = PortGather(target, port) if port is not None else None
        MeshEndpoint[P, R](target, self._spec, self._options)._post(parts, gather)

    def _packed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Buffer]:
        """Return the arguments' parts, if they can be sent.

        What was given a number and is not sent would hold back all that is sent after it (A-1).
        """
        self._spec.check(args, kwargs)
        parts = pack_call(args, kwargs)
        size = len(parts[0])  # bytes; the others are borrowed
        if len(parts) > 1:
            size += sum(memoryview(part).nbytes for part in parts[1:])
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
        gather = Gather(self._target, self._spec.name, self._options)

        def decode(answers: list[Answer]) -> U:
            return finish([answer() for answer in answers])

        future = AllAnswers(self._name, gather, decode)
        self._post(parts, gather)
        return future

    def _post(self, parts: Parts, gather: Gathering | None) -> None:
        """Send from this thread where that can be done now, else by the connections' loop.

        A number that was given is sent in either case; how threads race does not matter (A-1).
        """
        runtime = self._target.runtime
        ways = self._target.ways(self._spec.name, runtime.context().actor_key)
        if gather is not None:
            if self._options.retries and isinstance(gather, Gather):
                gather.again = lambda at: self._send_one(ways[at], parts, gather, at=at)
            gather.begin()
        if self._target.spreads:
            lent = parts if gather is not None else own(parts)
            with HeldInterrupts():
                messages = [(at, way, next(way.numbers)) for at, way in enumerate(ways)]
                runtime.io.post(self._cast, Casting(runtime.connections, messages, lent, gather))
            return
        for at, way in enumerate(ways):
            link = way.link
            if link is not None:
                pending = gather.point(at) if gather is not None else None
                call = link.submit(way.key, parts, pending, numbers=way.numbers)
                if call != NOT_SENT:
                    if gather is not None:
                        gather.posted(at, link, call)
                    continue
            self._post_one(way, parts if gather is not None else own(parts), gather, at=at)

    def _post_one(self, way: Way, parts: Parts, gather: Gathering | None, *, at: int = 0) -> None:
        # Ctrl-C between a number and its message would hold back all that is sent later.
        with HeldInterrupts():
            numbered = (way, at, next(way.numbers))
            self._target.runtime.io.post(self._send_numbered, numbered, parts, gather)

    def _cast(self, casting: Casting) -> None:
        gather = cast("Gathering | None", casting.waiting)
        for at, way, number in casting.send():
            self._send_numbered((way, at, number), casting.parts, gather)

    def _send_one(self, way: Way, parts: Parts, gather: Gathering | None, *, at: int) -> None:
        self._send_numbered((way, at, next(way.numbers)), parts, gather)

    def _send_numbered(
        self, message: tuple[Way, int, int], parts: Parts, gather: Gathering | None
    ) -> None:
        way, at, number = message
        way.link = link = self._target.runtime.connections.link(way.ref)
        pending = gather.point(at) if gather is not None else None
        call = link.post(functools.partial(way.build, number=number), parts, pending)
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


def _endpoint(
    cls: type[Actor], facts: tuple[Any, ...], name: str, *, options: Options
) -> MeshEndpoint[..., Any]:
    """Return an endpoint that came from another process (A-10)."""
    mesh_id, mesh_name, region, refs = facts
    target = Target(get_runtime(), mesh_id, mesh_name, region, refs, cls=cls)
    spec = cls.__endpoints__.get(name) or undeclared(cls, name)
    if spec is None:
        raise AttributeError(f"{cls.__qualname__} has no endpoint {name!r} here")
    return MeshEndpoint(target, spec, UNLIMITED if options == UNLIMITED else options)


def send(
    endpoint: Endpoint[P, R],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *more: Any,
    port: Port[R] | None = None,
    selection: Selection = "all",
) -> None:
    """Send to the actors of a mesh and have their answers sent to a port.

    Args:
        endpoint: Of a mesh.
        args: Its positional arguments.
        kwargs: Its other arguments.
        more: ``port``, or it and ``selection``, without their names.
        port: Where values and errors go, each with the rank that it came from; they pass through
            this process.  None: as ``broadcast``.
        selection: ``all`` of the mesh, or one as of ``choose``.

    Raises:
        TypeError: There is more than that.
    """
    if len(more) > 2:
        raise TypeError(f"send() takes 3 to 5 positional arguments, {3 + len(more)} were given")
    port = more[0] if more else port
    selection = more[1] if len(more) > 1 else selection
    cast("MeshEndpoint[P, R]", endpoint).send(args, kwargs or {}, port, selection=selection)


class PlainMethod:
    """A method of a mesh's actors that they do not offer as an endpoint.

    Args:
        target: The actors.
        method: Its name.
        function: What their class has under it.
    """

    def __init__(self, target: Target, method: str, function: Callable[..., Any]) -> None:
        self.target, self.method, self.function = target, method, function

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self.target.name}.{self.method} is a method of its actors and no endpoint: declare "
            f"it with @endpoint, or call as_endpoint(mesh.{self.method})"
        )


@overload
def as_endpoint(
    method: Callable[P, Coroutine[Any, Any, R]],
    *,
    explicit_response_port: Literal[False] = False,
    propagate: Propagator = None,
) -> Endpoint[P, R]: ...


@overload
def as_endpoint(
    method: Callable[P, R],
    *,
    explicit_response_port: Literal[False] = False,
    propagate: Propagator = None,
) -> Endpoint[P, R]: ...


@overload
def as_endpoint(
    method: Callable[Concatenate[Port[R], P], Any],
    *,
    explicit_response_port: Literal[True],
    propagate: Propagator = None,
) -> Endpoint[P, R]: ...


def as_endpoint(
    method: Any, *, explicit_response_port: bool = False, propagate: Propagator = None
) -> Any:
    """Return a method of a mesh's actors as if it were declared with ``@endpoint``.

    Args:
        method: As in ``counters.reset``, where ``counters`` is a mesh.
        explicit_response_port: As of ``endpoint``.
        propagate: As of ``endpoint``.

    Raises:
        TypeError: It is no method of a mesh's actors, or is an endpoint already.
    """
    if not isinstance(method, PlainMethod):
        raise TypeError(f"{method!r} is not a method, and no endpoint, of a mesh of actors")
    name = undeclared_name(method.method, explicit_response_port)
    spec = EndpointSpec(
        name, method.function, explicit_port=explicit_response_port, propagate=propagate
    )
    return MeshEndpoint(method.target, spec)
