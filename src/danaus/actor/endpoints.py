"""What an actor offers: declarations of endpoints and the check of a call's arguments.

Owns ``Actor``, ``endpoint``, ``concurrent_endpoint`` and ``EndpointSpec``.  How a call travels is
``calls``' work, how it runs ``cell``'s.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from danaus.actor.faces import MeshFace, Method
from danaus.actor.failure import MeshFailure

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

# What a mesh of actors itself answers to; an endpoint of that name could not be reached.
RESERVED = frozenset(
    {
        "extent",
        "flatten",
        "initialized",
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
    """One endpoint as its class declares it."""

    name: str
    function: Callable[..., Any]
    concurrent: bool

    @property
    def is_async(self) -> bool:
        """Tell whether it runs on the event loop instead of the actor's thread."""
        return _is_async(self.function)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise ``TypeError`` unless the endpoint can be called with these arguments."""
        try:
            _signature(self.function).bind(None, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function.__qualname__}(): {error}") from None


@functools.lru_cache(maxsize=4096)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@functools.lru_cache(maxsize=4096)
def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


class EndpointDeclaration(Generic[P, R, D]):
    """What ``@endpoint`` leaves in the class.  On an instance it is the plain method."""

    def __init__(self, function: Callable[..., Any], *, concurrent: bool) -> None:
        if not inspect.isroutine(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} cannot be an endpoint: it must be a plain method")
        self.function = function
        self.concurrent = concurrent
        functools.update_wrapper(cast(Any, self), function)

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


@overload
def endpoint(
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> EndpointDeclaration[P, R, Coroutine[Any, Any, R]]: ...


@overload
def endpoint(function: Callable[Concatenate[Any, P], R]) -> EndpointDeclaration[P, R, R]: ...


def endpoint(function: Callable[..., Any]) -> EndpointDeclaration[..., Any, Any]:
    """Declare a method that can be called through a mesh; one runs at a time per actor (A-2).

    A plain method runs on the actor's own thread and may block as long as it likes; an ``async``
    one runs on the process's event loop, which it must not block.
    """
    return EndpointDeclaration(function, concurrent=False)


@overload
def concurrent_endpoint(
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> EndpointDeclaration[P, R, Coroutine[Any, Any, R]]: ...


@overload
def concurrent_endpoint(
    function: Callable[Concatenate[Any, P], R],
) -> EndpointDeclaration[P, R, R]: ...


def concurrent_endpoint(function: Callable[..., Any]) -> EndpointDeclaration[..., Any, Any]:
    """Declare an endpoint that only *starts* in order: it runs beside whatever is running (A-2)."""
    return EndpointDeclaration(function, concurrent=True)


class Actor(MeshFace):
    """Base of all actors.  Subclass it, declare endpoints, spawn it on a ``ProcMesh``.

    Hooks, all plain or ``async``:
        ``__supervise__(self, failure: MeshFailure) -> bool``: something that this actor owns has
        failed; true means handled.  It runs beside a running endpoint, one failure at a time.
        ``__cleanup__(self, exc: BaseException | None)``: the actor ends; what it owned is gone.
    """

    __endpoints__: ClassVar[dict[str, EndpointSpec]] = {}

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
                found[name] = EndpointSpec(name, value.function, value.concurrent)
            elif name in found:
                del found[name]  # overridden by something that is no endpoint
        cls.__endpoints__ = found

    def __supervise__(self, failure: MeshFailure) -> Any:
        """Say whether ``failure`` is handled; an actor that says nothing passes it on (A-7)."""
        return None

    def __cleanup__(self, exc: BaseException | None) -> Any:
        """Let go of what the actor holds; ``exc`` is what ends it, None for an orderly stop."""
        return None
