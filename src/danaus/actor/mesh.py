"""Meshes of hosts and of processes as users hold them.

References only: they can be cut, renamed, pickled and used from any process of the job (A-10).
What owns and what happens lies in ``owned`` and ``supervision``.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

from danaus.actor.actor_mesh import ActorMesh, public_refs, stop_owned
from danaus.actor.binding import wanted_binding
from danaus.actor.endpoints import Actor
from danaus.actor.future import Future
from danaus.actor.identity import HostRef, ProcessRef, check_name, process_id
from danaus.actor.links import Live
from danaus.actor.mesh_geometry import Mesh, table
from danaus.actor.owned import GRACE_S, OwnedActors, OwnedProcs, ProcsTerms
from danaus.actor.process_runtime import get_runtime
from danaus.actor.restart import Restart
from danaus.actor.supervision_messages import MeshOwned, ProcessName
from danaus.core.errors import ConfigError
from danaus.core.extent import Extent, Point, Region
from danaus.wire.codec import own, pack

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)

ProcBind = str | Sequence[Mapping[str, str]] | None
Env = Mapping[str, str] | Callable[[Point], Mapping[str, str]] | None

_numbers = itertools.count(1)


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
        bootstrap: Callable[[], Any] | None = None,
        name: str | None = None,
        *,
        proc_bind: ProcBind = None,
        env: Env = None,
        incarnation: int = 0,
    ) -> ProcMesh:
        """Start worker processes on every host; returns at once.

        Args:
            per_host: Axes and sizes of the processes on one host; None: one process, no axis.
            bootstrap: Called in each process, plain or async, before it takes any message; one
                that raises ends its process, with the traceback in the last log lines.
            name: Of the mesh and in the ids of its processes; None makes one up.
            proc_bind: ``numa``: each process runs on one NUMA node and has its memory from there;
                ``cpus``: each has an equal share of the CPUs; or, for each process of a host,
                numactl's words as in ``{"cpunodebind": "0", "membind": "0"}`` or
                ``{"physcpubind": "0-3"}``.
            env: Variables to set in the workers' environment, or a function that has them for
                each point of the mesh.
            incarnation: How often a mesh of this name was started here before.

        Returns:
            The processes, on the axes of the hosts followed by those of ``per_host``.

        Raises:
            ConfigError: A mesh of this name and incarnation was started here before, or
                ``proc_bind`` means nothing.
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
        terms = ProcsTerms(
            tuple(dict(env(point) if callable(env) else env or {}) for point in extent.points()),
            inner.num_points,
            wanted_binding(proc_bind),
            tuple(bytes(part) for part in pack(bootstrap)) if bootstrap is not None else (),
        )
        runtime = get_runtime()
        runtime.claim(_names(refs))
        mesh_id, owner = runtime.new_mesh_id(name), runtime.context().actor_key
        event = MeshOwned(mesh_id, name, owner, tuple(extent.points()), _names(refs))
        owned = OwnedProcs(mesh_id, name, refs, terms=terms)
        runtime.io.post(lambda: runtime.start_procs(owned, event, hosts=hosts))
        return ProcMesh(extent.region(), refs, name=name, mesh_id=mesh_id, owned=owned)

    def stop(self, grace_s: float = GRACE_S) -> Future[None]:
        """Stop every process mesh of this program that has a process here; the hosts stay (P-5).

        Args:
            grace_s: As of ``ProcMesh.stop``.
        """
        runtime, here = get_runtime(), {host.agent_address for host in self.hosts}
        ended: Future[None] = Future(f"the processes on {self} to end")
        runtime.io.post(runtime.stop_procs_on, here, grace_s, lambda: _settle(ended))
        return ended

    def shutdown(self, grace_s: float = GRACE_S) -> Future[None]:
        """Stop what is here, whoever owns it, then end the hosts' agents too.

        A host that waited to be joined waits again; one that this program started is no more.

        Args:
            grace_s: As of ``ProcMesh.stop``.
        """
        runtime, hosts = get_runtime(), self.hosts
        ended: Future[None] = Future(f"{self} to shut down")

        def shut_down() -> None:
            runtime.shut_down_hosts(hosts, grace_s, lambda: _settle(ended))

        here = {host.agent_address for host in hosts}
        runtime.io.post(runtime.stop_procs_on, here, grace_s, shut_down)
        return ended

    def to_table(self) -> str:
        """Return which hosts these are, one line for each."""
        rows = [
            (str(point), host.name, host.agent_address)
            for point, host in zip(self.points(), self.hosts, strict=True)
        ]
        return table(rows)

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
        """The processes of this part, by rank; those that have the places now, as far as known."""
        refs = self._owned.refs if self._owned is not None else self._refs
        return tuple(refs[rank] for rank in self._region.base_ranks())

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

    @overload
    def spawn(self, name: str, cls: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> A: ...

    @overload
    def spawn(
        self, name: str, cls: type[A], *args: Any, restart: Restart | None, **kwargs: Any
    ) -> A: ...

    def spawn(self, name: str, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Make one actor on each process; returns at once.

        Args:
            name: Of the actors.
            cls: Their class; it is called with the remaining arguments, in each process.
            restart: What is done about failures before the owner is told of them (A-9): a rank
                is made anew with the same arguments, in its process, or in a new one in place of
                a process that has ended; others' references stay good.  Processes are started
                again on their host, and where this very program owns them too.

        Returns:
            An ``ActorMesh``; type checkers take it for ``cls`` (see ``faces``).
        """
        if not (isinstance(cls, type) and issubclass(cls, Actor)):
            raise TypeError(f"{cls!r} is not a subclass of Actor")
        restart: Restart | None = kwargs.pop("restart", None)
        mesh_id = get_runtime().new_mesh_id(name)
        return self.spawn_as(mesh_id, name, (cls, args, kwargs), restart=restart)

    def spawn_as(
        self,
        mesh_id: str,
        name: str,
        what: tuple[type[Actor], Any, Any],
        *,
        restart: Restart | None = None,
    ) -> Any:
        """Do what ``spawn`` does with class and arguments, for a mesh that is known by this id."""
        runtime = get_runtime()
        refs, extent = self.refs, self.extent
        made_here = all(ref.process_id == runtime.info.process_id for ref in refs)
        if restart is not None:
            refs = tuple(dataclasses.replace(ref, restarts=True) for ref in refs)
        parts = [Live.of(what)] if made_here else own(pack(what))
        owner = runtime.context().actor_key
        event = MeshOwned(
            mesh_id,
            name,
            owner,
            tuple(extent.points()),
            _names(refs),
            on=self.mesh_id,
            restart=restart,
        )
        owned = OwnedActors(mesh_id, name, extent)
        with runtime.sending:
            runtime.io.post(lambda: runtime.start_actors(owned, event, refs=refs, parts=parts))
        return ActorMesh(what[0], extent.region(), refs, name=name, mesh_id=mesh_id, owned=owned)

    def stop(self, grace_s: float = GRACE_S) -> Future[None]:
        """Ask every process to end; after ``grace_s`` seconds terminate it, then kill it (P-5)."""
        owned = self._mine("stop")
        owned.grace_s = grace_s
        return stop_owned(owned)

    def kill(self) -> Future[None]:
        """SIGKILL every process now."""
        owned = self._mine("kill")
        owned.kill_reason = "killed by its owner"
        return stop_owned(owned)

    def logging_option(
        self,
        stream_to_client: bool = True,
        aggregate_window_sec: float | None = None,
        level: int | None = None,
    ) -> None:
        """Have the last lines of the processes, and those that follow, shown here, or no longer.

        Args:
            stream_to_client: Whether they are shown, each with the process that wrote it.
            aggregate_window_sec: Seconds for which lines are collected, so that one that several
                processes write, or one often, is shown once; None: each is shown as it comes.
            level: Of Python's root logger in the processes, as in ``logging.INFO``; None leaves
                it alone.
        """
        owned, runtime = self._mine("logging_option"), get_runtime()
        window_s = (aggregate_window_sec or 0.0) if stream_to_client else -1.0
        runtime.io.post(runtime.show_logs, owned, window_s, level)

    def to_table(self) -> str:
        """Return who is who, one line for each process."""
        pids = self._owned.pids if self._owned is not None else {}
        return table(
            [
                (str(point), ref.process_id, str(pids.get(ref.process_id, "-")))
                for point, ref in zip(self.points(), self.refs, strict=True)
            ]
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
        refs = self._owned.refs if self._owned is not None else self._refs
        return _procs, (self._region, public_refs(refs), self.name, self.mesh_id)


def _settle(future: Future[None]) -> None:
    """Let whoever waits for an end go on."""
    future.set_value(None)


def _names(refs: tuple[ProcessRef, ...]) -> tuple[ProcessName, ...]:
    return tuple(ProcessName(ref.job, ref.process_id) for ref in refs)


def _procs(region: Region, *facts: Any) -> ProcMesh:
    refs, name, mesh_id = facts
    return ProcMesh(region, refs, name=name, mesh_id=mesh_id)
