"""Actors of which a job has one, by name, wherever they are asked for.

Owns ``get_or_spawn_controller``.  They live in the job's first process, its controller: the actor
that knows their names is made there when it is first asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from danaus.actor.actor_mesh import ActorMesh
from danaus.actor.endpoints import Actor, endpoint
from danaus.actor.failure import MeshFailure
from danaus.actor.future import Future
from danaus.actor.here import this_proc
from danaus.actor.identity import CONTROLLERS, ProcessRef
from danaus.actor.process_runtime import get_runtime
from danaus.core.errors import ConfigError
from danaus.core.extent import Extent

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)


class Controllers(Actor):
    """Knows each controller by its name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Any]] = {}
        self._have_come_up: set[str] = set()

    @endpoint
    def get_or_spawn(self, name: str, cls: type[Actor], how: tuple[Any, Any]) -> Any:
        """Return the controller of this name, made now if there is none."""
        args, kwargs = how
        kind = f"{cls.__module__}.{cls.__qualname__}"
        if name not in self._known:
            mesh: Any = this_proc().spawn(name, cls, *args, **kwargs)
            mesh.initialized.get()
            self._have_come_up.add(mesh.mesh_id)
            self._known[name] = (kind, mesh)
        known, mesh = self._known[name]
        if known != kind:
            raise ConfigError(
                what=f"the controller {name!r} is a {known}", needed=f"another name for a {kind}"
            )
        return mesh

    def __supervise__(self, failure: MeshFailure) -> bool:
        """Pass on what befalls a controller; who asked for one that never came to be is told."""
        return failure.mesh_id not in self._have_come_up


def get_or_spawn_controller(
    name: str, cls: Callable[P, A], *args: P.args, **kwargs: P.kwargs
) -> Future[A]:
    """Return the one actor of this name in the job, made now if there is none.

    Args:
        name: Of the actor; whoever asks for it first decides its arguments.
        cls: Its class.
        args: What it is made with.
        kwargs: The same, by name.

    Returns:
        A future of a mesh of one actor, without axes; it raises ``ActorError`` if it cannot be
        made, and if the name is taken by an actor of another class.

    Raises:
        TypeError: ``cls`` is no subclass of ``Actor``.
    """
    if not (isinstance(cls, type) and issubclass(cls, Actor)):
        raise TypeError(f"{cls!r} is not a subclass of Actor")
    found = _controllers().get_or_spawn.call_one(name, cls, (args, kwargs))
    return cast("Future[A]", found)


def _controllers() -> Any:
    """Return a reference to the actor that knows the names, wherever this process is."""
    runtime = get_runtime()
    info = runtime.info
    root = ProcessRef(info.process_id, "", "", "")
    if info.root_id:
        root = ProcessRef(info.root_id, "", info.root_address, runtime.connections.ref().job)
    region = Extent((), ()).region()
    return ActorMesh(Controllers, region, (root,), name="controllers", mesh_id=CONTROLLERS)


def make_controllers() -> None:
    """Make the actor that knows the names, in this process."""
    this_proc().spawn_as(CONTROLLERS, "controllers", (Controllers, (), {}))
