"""Meshes as users hold them: of hosts, of processes, of actors.

References only: they can be cut, renamed, pickled and used from any process of the job (A-10).
What owns and what happens lies in ``owned`` and ``supervision``.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

from danaus.actor.calls import MeshEndpoint, PlainMethod
from danaus.actor.endpoints import Actor
from danaus.actor.future import Future
from danaus.actor.identity import HostRef, ProcessRef, check_name, process_id
from danaus.actor.links import Live
from danaus.actor.owned import GRACE_S, OwnedActors, OwnedMesh, OwnedProcs
from danaus.actor.process_runtime import get_runtime
from danaus.actor.supervision_messages import MeshOwned, ProcessName
from danaus.actor.targets import Target
from danaus.core.errors import ConfigError
from danaus.core.extent import Extent, Point, Region
from danaus.wire.codec import own, pack

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)

_numbers = itertools.count(1)


class Mesh:
    """Geometry that all meshes share.

    Args:
        region: Which part of the whole mesh this is.
    """

    def __init__(self, region: Region) -> None:
        self._region = region

    def _cut(self, region: Region) -> Self:
        raise NotImplementedError

    @property
    def extent(self) -> Extent:
        """Axes and sizes."""
        return self._region.extent

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by axis."""
        return self._region.extent.to_dict()

    def size(self, axis: str | Sequence[str] | None = None) -> int:
        """Return the places on ``axis``, on several together, or of all."""
        return self._region.extent.size(axis)

    def points(self) -> Iterator[Point]:
        """Yield every place, by rank."""
        return self._region.extent.points()

    def slice(self, **selection: int | slice) -> Self:
        """Return a part: a number takes one place and drops its axis, a slice keeps it."""
        return self._cut(self._region.slice(**selection))

    def split(self, **parts: Sequence[str] | int) -> Self:
        """Return the same mesh with axes split: ``split(hosts=("dp", "pp"), pp=4)``."""
        return self._cut(self._region.split(**parts))

    def flatten(self, name: str) -> Self:
        """Return the same mesh on one axis."""
        return self._cut(self._region.flatten(name))

    def rename(self, **names: str) -> Self:
        """Return the same mesh with axes called by other names: ``rename(old="new")``."""
        return self._cut(self._region.rename(**names))

    def __len__(self) -> int:
        return self._region.num_points

    def __iter__(self) -> Iterator[Point]:
        return self.points()


class HostMesh(Mesh):
    """Hosts, each with its agent.

    Args:
        region: Which part of ``hosts`` this is.
        hosts: All hosts.
    """

    def __init__(self, region: Region, hosts: tuple[HostRef, ...]) -> None:
        super().__init__(region)
        self._hosts = hosts

    def _cut(self, region: Region) -> HostMesh:
        return HostMesh(region, self._hosts)

    @property
    def hosts(self) -> tuple[HostRef, ...]:
        """The hosts of this part, by rank."""
        return tuple(self._hosts[rank] for rank in self._region.base_ranks())

    def spawn_procs(
        self,
        per_host: Mapping[str, int] | None = None,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        incarnation: int = 0,
    ) -> ProcMesh:
        """Start worker processes on every host; returns at once.

        Args:
            per_host: Axes and sizes of the processes on one host; None: one process, no axis.
            name: Of the mesh and in the ids of its processes; None makes one up.
            env: Variables to set in the workers' environment.
            incarnation: How often a mesh of this name was started here before.

        Returns:
            The processes, on the axes of the hosts followed by those of ``per_host``.

        Raises:
            ConfigError: A mesh of this name and incarnation was started here before.
        """
        name = check_name(name or f"procs{next(_numbers)}", "the name of a mesh")
        inner = Extent.of(dict(per_host or {}))
        extent = self.extent.join(inner)
        hosts = tuple(host for host in self.hosts for _ in range(inner.num_points))
        refs = tuple(
            ProcessRef(
                process_id(host.name, name, rank, incarnation=incarnation),
                host.agent_address,
                "",
                host.job,
            )
            for rank, host in enumerate(hosts)
        )
        runtime = get_runtime()
        runtime.claim(_names(refs))
        mesh_id, owner = runtime.new_mesh_id(name), runtime.context().actor_key
        event = MeshOwned(mesh_id, name, owner, tuple(extent.points()), _names(refs))
        owned = OwnedProcs(mesh_id, name, refs)
        runtime.io.post(lambda: runtime.start_procs(owned, event, hosts=hosts, env=dict(env or {})))
        return ProcMesh(extent.region(), refs, name=name, mesh_id=mesh_id, owned=owned)

    def __repr__(self) -> str:
        return f"HostMesh({self.extent}: {', '.join(host.name for host in self.hosts)})"


class ProcMesh(Mesh):
    """Worker processes.  Made by ``HostMesh.spawn_procs`` or ``this_proc``.

    Args:
        region: Which part of ``refs`` this is.
        refs: All processes of the mesh.
        name: Of the mesh.
        mesh_id: Of the mesh.
        owned: What this process knows of it if it was spawned here.
    """

    def __init__(
        self,
        region: Region,
        refs: tuple[ProcessRef, ...],
        *,
        name: str,
        mesh_id: str,
        owned: OwnedProcs | None = None,
    ) -> None:
        super().__init__(region)
        self._refs = refs
        self.name = name
        self.mesh_id = mesh_id
        self._owned = owned

    def _cut(self, region: Region) -> ProcMesh:
        return ProcMesh(region, self._refs, name=self.name, mesh_id=self.mesh_id, owned=self._owned)

    @property
    def refs(self) -> tuple[ProcessRef, ...]:
        """The processes of this part, by rank."""
        return tuple(self._refs[rank] for rank in self._region.base_ranks())

    @property
    def process_ids(self) -> tuple[str, ...]:
        """Their ids, by rank."""
        return tuple(ref.process_id for ref in self.refs)

    @property
    def agent_addresses(self) -> tuple[str, ...]:
        """The addresses of their host agents, by rank."""
        return tuple(ref.agent_address for ref in self.refs)

    @property
    def initialized(self) -> Future[None]:
        """Settled once every process of the mesh listens; raises if one ended before."""
        return self._owned.initialized if self._owned is not None else Future.of(None)

    def pids(self) -> dict[str, int]:
        """Return the pids known so far, by process id; all of them after ``initialized``."""
        known = self._mine("pids").pids
        return {each: known[each] for each in self.process_ids if each in known}

    def spawn(self, name: str, cls: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        """Make one actor on each process; returns at once.

        Args:
            name: Of the actors.
            cls: Their class; it is called with the remaining arguments, in each process.

        Returns:
            An ``ActorMesh``; type checkers take it for ``cls`` (see ``faces``).
        """
        if not (isinstance(cls, type) and issubclass(cls, Actor)):
            raise TypeError(f"{cls!r} is not a subclass of Actor")
        runtime = get_runtime()
        refs, extent = self.refs, self.extent
        made_here = all(ref.process_id == runtime.info.process_id for ref in refs)
        what = (cls, args, kwargs)
        parts = [Live.of(what)] if made_here else own(pack(what))
        mesh_id, owner = runtime.new_mesh_id(name), runtime.context().actor_key
        event = MeshOwned(
            mesh_id, name, owner, tuple(extent.points()), _names(refs), on=self.mesh_id
        )
        owned = OwnedActors(mesh_id, name, extent)
        with runtime.sending:
            runtime.io.post(lambda: runtime.start_actors(owned, event, refs=refs, parts=parts))
        mesh: Any = ActorMesh(cls, extent.region(), refs, name=name, mesh_id=mesh_id, owned=owned)
        return cast(A, mesh)

    def stop(self, grace_s: float = GRACE_S) -> Future[None]:
        """Ask every process to end; after ``grace_s`` seconds terminate it, then kill it (P-5)."""
        owned = self._mine("stop")
        owned.grace_s = grace_s
        return _stop(owned)

    def kill(self) -> Future[None]:
        """SIGKILL every process now."""
        owned = self._mine("kill")
        owned.kill_reason = "killed by its owner"
        return _stop(owned)

    def logging_option(self, *, stream_to_client: bool = True) -> None:
        """Have the last lines of the processes, and those that follow, shown here, or no longer."""
        owned = self._mine("logging_option")
        get_runtime().io.post(owned.forward_logs, stream_to_client)

    def to_table(self) -> str:
        """Return who is who, one line for each process."""
        pids = self._owned.pids if self._owned is not None else {}
        rows = [
            (str(point), ref.process_id, str(pids.get(ref.process_id, "-")))
            for point, ref in zip(self.points(), self.refs, strict=True)
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def _mine(self, what: str) -> OwnedProcs:
        if self._owned is None:
            raise ConfigError(
                what=f"{self.name}.{what}()",
                needed="the process that spawned the mesh",
                to_do="ask its owner",
            )
        return self._owned

    async def __aenter__(self) -> Self:
        await self.initialized
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"ProcMesh({self.name}: {self.extent})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _procs, (self._region, _public(self._refs), self.name, self.mesh_id)


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
        self._mesh_id = mesh_id
        self._owned = owned
        self._target: Target | None = None

    def _cut(self, region: Region) -> ActorMesh[A]:
        return ActorMesh(
            self._cls,
            region,
            self._refs,
            name=self.mesh_name,
            mesh_id=self._mesh_id,
            owned=self._owned,
        )

    @property
    def initialized(self) -> Future[None]:
        """Settled once every actor of the mesh exists; raises if one could not be made."""
        return self._owned.initialized if self._owned is not None else Future.of(None)

    def stop(self) -> Future[None]:
        """Take no new message, finish those at hand, clean up; the processes stay."""
        if self._owned is None:
            raise ConfigError(
                what=f"{self.mesh_name}.stop()",
                needed="the process that spawned the mesh",
                to_do="ask its owner",
            )
        return _stop(self._owned)

    def __getattr__(self, name: str) -> MeshEndpoint[..., Any] | PlainMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        runtime = get_runtime()
        if self._target is None or self._target.runtime is not runtime:
            self._target = Target(runtime, self._mesh_id, self.mesh_name, self._region, self._refs)
        spec = self._cls.__endpoints__.get(name)
        if spec is not None:
            return MeshEndpoint(self._target, spec)
        function = inspect.getattr_static(self._cls, name, None)
        if inspect.isfunction(function):
            return PlainMethod(self._target, name, function)
        raise AttributeError(
            f"{self._cls.__qualname__} has no endpoint {name!r}: "
            f"there are {sorted(self._cls.__endpoints__)}"
        )

    def __repr__(self) -> str:
        return f"ActorMesh({self.mesh_name}: {self._cls.__qualname__} on {self.extent})"

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self._region, _public(self._refs), self.mesh_name, self._mesh_id)
        return _actors, (self._cls, facts)


def _stop(owned: OwnedMesh) -> Future[None]:
    runtime = get_runtime()
    runtime.io.post(runtime.supervisor.stop, owned)
    return owned.ended


def _names(refs: tuple[ProcessRef, ...]) -> tuple[ProcessName, ...]:
    return tuple(ProcessName(ref.job, ref.process_id) for ref in refs)


def _public(refs: tuple[ProcessRef, ...]) -> tuple[ProcessRef, ...]:
    """Return the references as other processes can use them."""
    runtime = get_runtime()
    mine = runtime.info.process_id
    return tuple(runtime.connections.ref() if ref.process_id == mine else ref for ref in refs)


def _procs(region: Region, *facts: Any) -> ProcMesh:
    refs, name, mesh_id = facts
    return ProcMesh(region, refs, name=name, mesh_id=mesh_id)


def _actors(cls: type[Actor], facts: tuple[Any, ...]) -> ActorMesh[Any]:
    region, refs, name, mesh_id = facts
    return ActorMesh(cls, region, refs, name=name, mesh_id=mesh_id)
