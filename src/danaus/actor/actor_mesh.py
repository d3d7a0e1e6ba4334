"""Actors of one class on a mesh of processes, as users hold them: a reference (A-10)."""

from __future__ import annotations

import inspect
from typing import Any, Generic, TypeVar

from danaus.actor.calls import MeshEndpoint, PlainMethod
from danaus.actor.endpoints import Actor
from danaus.actor.future import Future
from danaus.actor.identity import ProcessRef
from danaus.actor.mesh_geometry import Mesh
from danaus.actor.owned import OwnedActors, OwnedMesh
from danaus.actor.process_runtime import get_runtime, public_refs
from danaus.actor.targets import Target
from danaus.core.errors import ConfigError
from danaus.core.extent import Region

A = TypeVar("A", bound=Actor)


class ActorMesh(Mesh, Generic[A]):
    """Actors of one class; each endpoint of the class is an attribute.

    Args:
        cls: Their class.
        region: Which part of ``refs`` this is.
        refs: The processes of all actors of the mesh.
        name: Of the actors.
        mesh_id: Of the mesh.
        owned: What this process knows of it if it was spawned here.
    """

    def __init__(
        self,
        cls: type[Actor],
        region: Region,
        refs: tuple[ProcessRef, ...],
        *,
        name: str,
        mesh_id: str,
        owned: OwnedActors | None = None,
    ) -> None:
        super().__init__(region)
        self._cls = cls
        self._refs = refs
        self.mesh_name = name
        self.mesh_id = mesh_id
        self._owned = owned
        self._target: Target | None = None
        self._found: dict[str, MeshEndpoint[..., Any]] = {}  # endpoints asked for so far

    def _cut(self, region: Region) -> ActorMesh[A]:
        return ActorMesh(
            self._cls,
            region,
            self._refs,
            name=self.mesh_name,
            mesh_id=self.mesh_id,
            owned=self._owned,
        )

    @property
    def initialized(self) -> Future[None]:
        """Settled once every actor of the mesh exists; raises if one could not be made."""
        return self._owned.initialized if self._owned is not None else Future.of(None)

    def stop(self, reason: str = "") -> Future[None]:
        """Take no new message, finish those at hand, clean up; the processes stay.

        Args:
            reason: What those are told who call later.

        Returns:
            A future of the end; it raises ``ActorError`` with what a ``__cleanup__`` raised.

        Raises:
            ConfigError: Another process spawned the mesh.
        """
        if self._owned is None:
            raise ConfigError(
                what=f"{self.mesh_name}.stop()",
                needed="the process that spawned the mesh",
                to_do="ask its owner",
            )
        return stop_owned(self._owned, reason)

    def __getattr__(self, name: str) -> MeshEndpoint[..., Any] | PlainMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        runtime = get_runtime()
        target = self._target
        if target is None or target.runtime is not runtime:
            facts = (self.mesh_id, self.mesh_name, self._region, self._refs)
            target = Target(runtime, *facts, cls=self._cls)
            self._target, self._found = target, {}
        found = self._found.get(name)
        if found is not None:
            return found
        spec = self._cls.__endpoints__.get(name)
        if spec is not None:
            found = self._found[name] = MeshEndpoint(target, spec)
            return found
        function = inspect.getattr_static(self._cls, name, None)
        if inspect.isfunction(function):
            return PlainMethod(target, name, function)
        raise AttributeError(
            f"{self._cls.__qualname__} has no endpoint {name!r}: "
            f"there are {sorted(self._cls.__endpoints__)}"
        )

    def __repr__(self) -> str:
        return f"ActorMesh({self.mesh_name}: {self._cls.__qualname__} on {self.extent})"

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self._region, public_refs(self._refs), self.mesh_name, self.mesh_id)
        return _actors, (self._cls, facts)


def stop_owned(owned: OwnedMesh, reason: str = "") -> Future[None]:
    """End a mesh that was spawned from here; return the future of its end."""
    runtime = get_runtime()
    owned.stop_reason = owned.stop_reason or reason
    runtime.io.post(runtime.supervisor.stop, owned)
    return owned.ended


def _actors(cls: type[Actor], facts: tuple[Any, ...]) -> ActorMesh[Any]:
    region, refs, name, mesh_id = facts
    return ActorMesh(cls, region, refs, name=name, mesh_id=mesh_id)
