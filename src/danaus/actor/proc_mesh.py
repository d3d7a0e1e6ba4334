"""Processes as a reference, which can be used from anywhere (A-10): all that needs no host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

from danaus.actor.actor_mesh import ActorMesh, stop_owned
from danaus.actor.columns import table
from danaus.actor.doing import Doing
from danaus.actor.endpoints import Actor
from danaus.actor.future import Future
from danaus.actor.holdings import WorkspaceHeld
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Live
from danaus.actor.mesh_geometry import Mesh
from danaus.actor.owned import GRACE_S, OwnedActors, OwnedProcs
from danaus.actor.process_runtime import get_runtime, public_refs
from danaus.actor.restart import Restart
from danaus.actor.supervision_messages import MeshOwned, ProcessName
from danaus.actor.workspace_sync import Synced, in_background, sync
from danaus.core.errors import ConfigError
from danaus.core.extent import Region
from danaus.wire.codec import own, pack

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)


class Procs(Mesh):
    """Worker processes: what they are, what is spawned on them, how they end.

    What users hold is ``mesh.ProcMesh``, which knows hosts as well.

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

    def _cut(self, region: Region) -> Self:
        return type(self)(
            region, self._refs, name=self.name, mesh_id=self.mesh_id, owned=self._owned
        )

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
            cls: Their class.
            args: It is called with these, in each process.
            kwargs: And with these.
            restart: What is done about failures before the owner is told of them (A-9): a rank
                is made anew with the same arguments, in its process, or in a new one in place of
                a process that has ended; others' references stay good.  Processes are started
                again on their host, and where this very program owns them too.

        Returns:
            An ``ActorMesh``; type checkers take it for ``cls`` (see ``faces``).

        Raises:
            TypeError: ``cls`` is no subclass of ``Actor``.
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
        me = runtime.context()
        event = MeshOwned(
            mesh_id,
            name,
            me.actor_key,
            tuple(extent.points()),
            names_of(refs),
            on=self.mesh_id,
            restart=restart,
        )
        owned = OwnedActors(mesh_id, name, extent)
        owned.creator = me.as_creator()
        if restart is not None and not made_here:
            owned.made_in = runtime.supervisor.record.lay_down(event, parts)
        with runtime.sending:
            runtime.io.post(lambda: runtime.start_actors(owned, event, refs=refs, parts=parts))
        return ActorMesh(what[0], extent.region(), refs, name=name, mesh_id=mesh_id, owned=owned)

    def stop(self, reason: str = "", *, grace_s: float = GRACE_S) -> Future[None]:
        """Ask every process to end; after ``grace_s`` seconds terminate it, then kill it (P-5).

        Args:
            reason: What those are told who call its actors later.
            grace_s: Seconds.
        """
        owned = self._mine("stop")
        owned.grace_s = grace_s
        return stop_owned(owned, reason)

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
    ) -> Doing[None]:
        """Have the last lines of the processes, and those that follow, shown here, or no longer.

        Args:
            stream_to_client: Whether they are shown, each with the process that wrote it.
            aggregate_window_sec: Seconds for which lines are collected, so that one that several
                processes write, or one often, is shown once; None: each is shown as it comes.
            level: Of Python's root logger in the processes, as in ``logging.INFO``; None leaves
                it alone.

        Returns:
            A future that is settled once they were told; it need not be waited for, and
            ``asyncio.run`` takes it.
        """
        owned, runtime = self._mine("logging_option"), get_runtime()
        window_s = (aggregate_window_sec or 0.0) if stream_to_client else -1.0
        told: Doing[None] = Doing(f"{self.name} to show what it writes")

        def tell() -> None:
            runtime.show_logs(owned, window_s, level)
            told.set_value(None)

        runtime.io.post(tell)
        return told

    def sync_workspace(self, folder: Path | str, *, auto_reload: bool = True) -> Doing[Synced]:
        """Bring a folder of code to these processes and their hosts, only what has changed.

        Files are known by their content; a host is sent what it never had, over the connections
        that are there.  Once every host has all of it, each process imports from it before
        anything else, and so do processes that are started on these hosts later.

        Args:
            folder: Modules and packages lie right below it; hidden files are left out.
            auto_reload: Execute again the imported modules whose files have changed.  Functions
                that actors call by name are then the new ones; the classes of actors that run
                stay, and so does what a module took from another with ``from … import …``.

        Returns:
            A future of what was sent to each host, and executed again in each process; it raises
            ``ActorError`` where a host's disk is full or a module cannot be executed.
        """
        runtime, job = get_runtime(), self.refs[0].job

        def laid_down(agent_address: str, tree: str) -> None:
            runtime.workspaces[agent_address] = tree
            runtime.supervisor.record.at_once(job, WorkspaceHeld(agent_address, tree))

        def work() -> Synced:
            return sync(self, Path(folder), reload=auto_reload, laid_down=laid_down)

        return in_background(work, f"{folder} to reach {self}")

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
        return _procs, (type(self), self._region, public_refs(refs), self.name, self.mesh_id)


def names_of(refs: tuple[ProcessRef, ...]) -> tuple[ProcessName, ...]:
    """Return what supervision calls these processes."""
    return tuple(ProcessName(ref.job, ref.process_id) for ref in refs)


def _procs(kind: type[Procs], region: Region, *facts: Any) -> Procs:
    refs, name, mesh_id = facts
    return kind(region, refs, name=name, mesh_id=mesh_id)
