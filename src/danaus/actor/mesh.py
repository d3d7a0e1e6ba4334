"""Meshes of hosts and of processes as users hold them: references, good anywhere (A-10).

What owns and what happens lies in ``owned`` and ``supervision``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from danaus.actor.binding import wanted_binding
from danaus.actor.columns import table
from danaus.actor.doing import Doing
from danaus.actor.future import Future
from danaus.actor.host_endings import StopTerms, shut_down_hosts, stop_procs_on
from danaus.actor.identity import HostRef, ProcessRef, check_name, process_id
from danaus.actor.mesh_geometry import Mesh
from danaus.actor.owned import GRACE_S, OwnedProcs, ProcsTerms, host_of
from danaus.actor.proc_mesh import Procs, names_of
from danaus.actor.process_runtime import get_runtime
from danaus.actor.supervision_messages import MeshOwned
from danaus.actor.workspace_sync import Synced, in_background
from danaus.core.errors import ConfigError
from danaus.core.extent import Extent, Point, Region
from danaus.wire.codec import pack

ProcBind = str | Sequence[Mapping[str, str]] | None
Env = Mapping[str, str] | Callable[[Point], Mapping[str, str]] | None

_numbers = itertools.count(1)


class ProcMesh(Procs):
    """Worker processes.  Made by ``HostMesh.spawn_procs`` or ``this_proc``."""

    @property
    def host_mesh(self) -> HostMesh:
        """The hosts that these processes run on, each once, on the axis ``hosts``."""
        return HostMesh.of(dict.fromkeys(_host_of(ref) for ref in self.refs))


class HostMesh(Mesh):
    """Hosts, each with its agent.

    Args:
        region: Which part of ``hosts`` this is.
        hosts: All hosts.
    """

    def __init__(self, region: Region, hosts: tuple[HostRef, ...]) -> None:
        super().__init__(region)
        self._hosts = hosts

    @classmethod
    def of(cls, hosts: Iterable[HostRef]) -> HostMesh:
        """Return these hosts on the axis ``hosts``."""
        found = tuple(hosts)
        return cls(Extent(("hosts",), (len(found),)).region(), found)

    def _cut(self, region: Region) -> HostMesh:
        return HostMesh(region, self._hosts)

    @property
    def hosts(self) -> tuple[HostRef, ...]:
        """The hosts of this part, by rank."""
        return tuple(self._hosts[rank] for rank in self._region.base_ranks())

    @property
    def initialized(self) -> Future[None]:
        """Settled: whoever gives a mesh of hosts has reached all of them."""
        return Future.of(None)

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
            per_host: Axes and sizes of the processes on one host; None: one process, no axis.  An
                axis of hosts with one place gives way to one of the same name.
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
            ValueError: An axis of more than one host has a name that ``per_host`` gives too.
            ConfigError: A mesh of this name and incarnation was started here before, or
                ``proc_bind`` means nothing.
        """
        name = check_name(name or f"procs{next(_numbers)}", "the name of a mesh")
        inner = Extent.of(dict(per_host or {}))
        extent = self._outer(inner).join(inner)
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
        runtime.claim(names_of(refs))
        mesh_id, owner = runtime.new_mesh_id(name), runtime.context().actor_key
        event = MeshOwned(mesh_id, name, owner, tuple(extent.points()), names_of(refs))
        owned = OwnedProcs(mesh_id, name, refs, terms=terms)
        runtime.io.post(lambda: runtime.start_procs(owned, event, hosts=hosts))
        return ProcMesh(extent.region(), refs, name=name, mesh_id=mesh_id, owned=owned)

    def _outer(self, inner: Extent) -> Extent:
        """Return the axes of the hosts but for those that those of one host take the place of."""
        sizes = self.sizes.items()
        return Extent.of({axis: size for axis, size in sizes if size > 1 or axis not in inner.axes})

    def stop(self, reason: str = "", *, grace_s: float = GRACE_S) -> Future[None]:
        """Stop every process mesh of this program that has a process here; the hosts stay (P-5).

        Args:
            reason: As of ``ProcMesh.stop``.
            grace_s: As of ``ProcMesh.stop``.
        """
        runtime, here = get_runtime(), {host.agent_address for host in self.hosts}
        ended: Future[None] = Future(f"the processes on {self} to end")
        terms = StopTerms(grace_s, reason)

        def stop() -> None:
            stop_procs_on(runtime, here, lambda: _settle(ended), terms=terms)

        runtime.io.post(stop)
        return ended

    def shutdown(self, reason: str = "", *, grace_s: float = GRACE_S) -> Future[None]:
        """Stop what is here, whoever owns it, then end the hosts' agents too.

        A host that waited to be joined waits again; one that this program started is no more.

        Args:
            reason: As of ``ProcMesh.stop``.
            grace_s: As of ``ProcMesh.stop``.
        """
        runtime, hosts = get_runtime(), self.hosts
        ended: Future[None] = Future(f"{self} to shut down")
        terms = StopTerms(grace_s, reason)

        def shut_down() -> None:
            shut_down_hosts(runtime, hosts, lambda: _settle(ended), terms=terms)

        here = {host.agent_address for host in hosts}
        runtime.io.post(lambda: stop_procs_on(runtime, here, shut_down, terms=terms))
        return ended

    def sync_workspace(self, folder: Path | str) -> Doing[Synced]:
        """Bring a folder of code to these hosts: processes that start later import from it first.

        Args:
            folder: As of ``ProcMesh.sync_workspace``; to those that run it is brought by that.

        Returns:
            As of ``ProcMesh.sync_workspace``.
        """

        def work() -> Synced:
            procs = self.spawn_procs(name=f"workspace{next(_numbers)}")
            try:
                return procs.sync_workspace(folder).get()
            finally:
                procs.stop().get()

        return in_background(work, f"{folder} to reach {self}")

    def to_table(self) -> str:
        """Return which hosts these are, one line for each."""
        rows = [
            (str(point), host.name, host.agent_address)
            for point, host in zip(self.points(), self.hosts, strict=True)
        ]
        return table(rows)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostMesh):
            return NotImplemented
        return (self.extent, self.hosts) == (other.extent, other.hosts)

    def __hash__(self) -> int:
        return hash((self.extent, self.hosts))

    def __repr__(self) -> str:
        return f"HostMesh({self.extent}: {', '.join(host.name for host in self.hosts)})"


def _host_of(ref: ProcessRef) -> HostRef:
    """Return the host of a process, as far as others can know it."""
    if ref.process_id == get_runtime().info.process_id:
        from danaus.actor.here import this_host  # it is made of the meshes here

        return this_host().hosts[0]
    if not ref.agent_address:
        raise ConfigError(
            what=f"{ref.process_id} is the program of another process",
            needed="a process that a host started",
            to_do="ask that program for this_host()",
        )
    return host_of(ref)


def _settle(future: Future[None]) -> None:
    """Let whoever waits for an end go on."""
    future.set_value(None)
