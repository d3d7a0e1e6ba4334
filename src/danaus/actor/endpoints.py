"""What an actor offers: declarations of endpoints and the check of a call's arguments.

Owns ``Actor``, ``endpoint``, ``concurrent_endpoint`` and ``EndpointSpec``.  How a call travels is
``calls``' work, how it runs ``cell``'s.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from danaus.actor.faces import MeshFace, Method
from danaus.actor.failure import MeshFailure
from danaus.actor.ports import Port
from danaus.actor.telemetry import traced

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

Propagator = Literal["cached", "inspect", "mocked"] | Callable[..., Any] | None

# What a mesh of actors itself answers to; an endpoint of that name could not be reached.
RESERVED = frozenset(
    {
        "extent",
        "flatten",
        "initialized",
        "mesh_id",
        "mesh_name",
        "points",
        "rename",
        "size",
        "sizes",
        "slice",
        "split",
        "stop",
    }
)


@dataclass(frozen=True)
class EndpointSpec:
    """One endpoint as its class declares it.

    ``explicit_port``: its first argument is a ``Port``, which answers the caller.
    ``idempotent``: to run it twice is as good as once.  ``instrument``: each call is a span.
    ``propagate`` is kept for a tensor engine.
    """

    name: str
    function: Callable[..., Any]
    concurrent: bool = False
    explicit_port: bool = False
    idempotent: bool = False
    instrument: bool = False
    propagate: Propagator = None

    @functools.cached_property
    def is_async(self) -> bool:
        """Tell whether it runs on the event loop instead of the actor's thread."""
        return inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def is_plain(self) -> bool:
        """Tell whether it runs on the actor's own thread."""
        return not (self.is_async or self.concurrent)

    @functools.cached_property
    def _counts(self) -> tuple[float, float]:
        """How many arguments, all without names, callers can give in any case."""
        given_here = 2 if self.explicit_port else 1
        fewest, most = _positional(self.function)
        return fewest - given_here, most - given_here

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise ``TypeError`` unless the endpoint can be called with these arguments."""
        if not kwargs:
            fewest, most = self._counts
            if fewest <= len(args) <= most:
                return
        given = (None, None, *args) if self.explicit_port else (None, *args)
        try:
            _signature(self.function).bind(*given, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function.__qualname__}(): {error}") from None


@functools.lru_cache(maxsize=4096)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _positional(function: Callable[..., Any]) -> tuple[int, float]:
    """Return how many arguments, all without names, are right in any case."""
    fewest, most = 0, 0.0
    for each in _signature(function).parameters.values():
        if each.kind is each.VAR_POSITIONAL:
            most = math.inf
        elif each.kind is each.KEYWORD_ONLY and each.default is each.empty:
            return 0, -1.0  # none: a name is needed
        elif each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            fewest, most = fewest + (each.default is each.empty), most + 1
    return fewest, most


_PLAIN, _WITH_PORT = "()", "(port)"  # what no endpoint's name ends with


def undeclared_name(method: str, explicit_port: bool) -> str:
    """Return the name by which a method that is no endpoint is called as one (``as_endpoint``)."""
    return method + (_WITH_PORT if explicit_port else _PLAIN)


def undeclared(cls: type, name: str) -> EndpointSpec | None:
    """Return the spec of a method that was made an endpoint by its caller, None if it is none."""
    method = name.removesuffix(_WITH_PORT).removesuffix(_PLAIN)
    function = inspect.getattr_static(cls, method, None)
    if method == name or not inspect.isfunction(function):
        return None
    return EndpointSpec(name, function, explicit_port=name.endswith(_WITH_PORT))


class EndpointDeclaration(Generic[P, R, D]):
    """What ``@endpoint`` leaves in the class.  On an instance it is the plain method."""

    def __init__(self, function: Callable[..., Any], facts: EndpointSpec) -> None:
        if not inspect.isroutine(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} cannot be an endpoint: it must be a plain method")
        self.function = function
        self.facts = facts
        functools.update_wrapper(cast(Any, self), function)

    def spec(self, name: str) -> EndpointSpec:
        """Return what the class declares under this name."""
        function = traced(self.function) if self.facts.instrument else self.function
        return dataclasses.replace(self.facts, name=name, function=function)

    @overload
    def __get__(self, instance: None, owner: type) -> EndpointDeclaration[P, R, D]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Method[P, R, D]: ...

    def __get__(
        self, instance: object | None, owner: type
    ) -> EndpointDeclaration[P, R, D] | Method[P, R, D]:
        if instance is None:
            return self
        return cast("Method[P, R, D]", functools.partial(self.function, instance))


class Declares(Protocol):
    """``endpoint(...)`` with options, before it is given the method."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> EndpointDeclaration[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, P], R], /
    ) -> EndpointDeclaration[P, R, R]: ...


class DeclaresWithPort(Protocol):
    """The same where the first argument is a ``Port``: what is sent there is the value."""

    def __call__(
        self, function: Callable[Concatenate[Any, Port[R], P], D], /
    ) -> EndpointDeclaration[P, R, D]: ...


@overload
def endpoint(
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> EndpointDeclaration[P, R, Coroutine[Any, Any, R]]: ...


@overload
def endpoint(function: Callable[Concatenate[Any, P], R]) -> EndpointDeclaration[P, R, R]: ...


@overload
def endpoint(
    *,
    explicit_response_port: Literal[False] = False,
    idempotent: bool = False,
    instrument: bool = False,
    propagate: Propagator = None,
) -> Declares: ...


@overload
def endpoint(
    *,
    explicit_response_port: Literal[True],
    idempotent: bool = False,
    instrument: bool = False,
    propagate: Propagator = None,
) -> DeclaresWithPort: ...


def endpoint(
    function: Callable[..., Any] | None = None,
    *,
    explicit_response_port: bool = False,
    idempotent: bool = False,
    instrument: bool = False,
    propagate: Propagator = None,
) -> Any:
    """Declare a method that can be called through a mesh; one runs at a time per actor (A-2).

    A plain method runs on the actor's own thread and may block as long as it likes; an ``async``
    one runs on the process's event loop, which it must not block.

    Args:
        function: The method; None: the declaration is used as ``@endpoint(...)``.
        explicit_response_port: Its first argument is a ``Port`` that callers do not give; what
            is sent there, then or later and from any task or process, answers the call.
        idempotent: To run it twice is as good as once: callers may have it retried.
        instrument: Each call is a span of a trace, where opentelemetry is installed (``traced``).
        propagate: What Monarch's tensor engine would ask for the shapes of its results; kept,
            and asked by nobody here.
    """
    facts = EndpointSpec(
        "",
        _no_method,
        explicit_port=explicit_response_port,
        idempotent=idempotent,
        instrument=instrument,
        propagate=propagate,
    )
    return _declared(function, facts)


@overload
def concurrent_endpoint(
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> EndpointDeclaration[P, R, Coroutine[Any, Any, R]]: ...


@overload
def concurrent_endpoint(
    function: Callable[Concatenate[Any, P], R],
) -> EndpointDeclaration[P, R, R]: ...


@overload
def concurrent_endpoint(
    *,
    explicit_response_port: Literal[False] = False,
    idempotent: bool = False,
    instrument: bool = False,
    propagate: Propagator = None,
) -> Declares: ...


@overload
def concurrent_endpoint(
    *,
    explicit_response_port: Literal[True],
    idempotent: bool = False,
    instrument: bool = False,
    propagate: Propagator = None,
) -> DeclaresWithPort: ...


def concurrent_endpoint(
    function: Callable[..., Any] | None = None,
    *,
    explicit_response_port: bool = False,
    idempotent: bool = False,
    instrument: bool = False,
    propagate: Propagator = None,
) -> Any:
    """Declare an endpoint that only *starts* in order: it runs beside whatever is running (A-2).

    Args:
        function: A method, plain or async.
        explicit_response_port: As of ``endpoint``.
        idempotent: As of ``endpoint``.
        instrument: As of ``endpoint``.
        propagate: As of ``endpoint``.
    """
    facts = EndpointSpec(
        "",
        _no_method,
        concurrent=True,
        explicit_port=explicit_response_port,
        idempotent=idempotent,
        instrument=instrument,
        propagate=propagate,
    )
    return _declared(function, facts)


def _declared(function: Callable[..., Any] | None, facts: EndpointSpec) -> Any:
    if function is None:
        return lambda method: EndpointDeclaration(method, facts)
    return EndpointDeclaration(function, facts)


def _no_method() -> None:
    """Stand where the method of a declaration will."""


class Actor(MeshFace):
    """Base of all actors.  Subclass it, declare endpoints, spawn it on a ``ProcMesh``.

    Hooks, all plain or ``async``:
        ``__supervise__(self, failure: MeshFailure) -> bool``: something that this actor owns has
        failed; true means handled.  It runs beside a running endpoint, one failure at a time.
        ``__cleanup__(self, exc: BaseException | None)``: the actor ends; what it owned is gone.
    """

    __endpoints__: ClassVar[dict[str, EndpointSpec]] = {}

    @functools.cached_property
    def logger(self) -> logging.Logger:
        """Python's logger of the class's name, which lets everything through."""
        logger = logging.getLogger(type(self).__name__)
        logger.setLevel(logging.DEBUG)
        return logger

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found = dict(cls.__endpoints__)
        for name, value in vars(cls).items():
            if isinstance(value, EndpointDeclaration):
                if name in RESERVED:
                    raise TypeError(
                        f"{cls.__qualname__}.{name}: an endpoint cannot be called {name!r}, every "
                        f"mesh has that itself; the reserved names are {sorted(RESERVED)}"
                    )
                found[name] = value.spec(name)
            elif name in found:
                del found[name]  # overridden by something that is no endpoint
        cls.__endpoints__ = found

    def __supervise__(self, failure: MeshFailure) -> Any:
        """Say whether ``failure`` is handled; an actor that says nothing passes it on (A-7)."""
        return None

    def __cleanup__(self, exc: BaseException | None) -> Any:
        """Let go of what the actor holds; ``exc`` is what ends it, None for an orderly stop."""
        return None
