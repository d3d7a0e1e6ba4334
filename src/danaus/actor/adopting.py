"""Taking over what an earlier controller of the same run has left (A-12).

Owns ``LeftProcs``, a mesh of processes that is still there or whose end is yet to be told, and
``Takeover``, which begins a controller's record, asks agents what lives, and keeps restart budgets.
Whoever adopts a mesh owns it from then on, and is told what befell it in between as if it had just
happened.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from danaus.actor import agent_messages as talk
from danaus.actor import procfs
from danaus.actor.actor_mesh import ActorMesh
from danaus.actor.endpoints import Actor
from danaus.actor.failure import Fault
from danaus.actor.holdings import (
    ActorsHeld,
    BudgetUsed,
    Holdings,
    HostHeld,
    HostLetGo,
    MeshLetGo,
    ProcsHeld,
)
from danaus.actor.holdings_log import HoldingsLog
from danaus.actor.identity import HostRef, ProcessRef
from danaus.actor.kept_budget import KeptBudget
from danaus.actor.made_of import MadeOf, unpack_parts
from danaus.actor.mesh import ProcMesh
from danaus.actor.owned import OwnedActors, OwnedProcs, ProcsTerms, host_of
from danaus.actor.proc_mesh import names_of
from danaus.actor.process_runtime import get_runtime
from danaus.actor.restart import Restart
from danaus.actor.runtime import Runtime
from danaus.actor.supervision_messages import MeshOwned, ProcessName
from danaus.core.errors import ConfigError
from danaus.core.extent import Extent

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)
_ASK_LIMIT_S = 5.0
_SPARE_S = 5.0


@dataclass(frozen=True)
class LeftProcs:
    """A mesh of processes that an earlier controller has started and that has not been stopped.

    Args:
        held: What was written down of it.
        actors: The meshes of actors on it, the oldest first.
        notes: What its owner noted.
        budgets: Failures that count already, of the actors that a policy starts again, by mesh.
        living: Its processes that live.
        reached: The addresses of the agents that have told.
        job: The job's name.
        made: The files of what its actors are made of.
    """

    held: ProcsHeld
    actors: tuple[ActorsHeld, ...]
    notes: Mapping[str, str]
    budgets: Mapping[str, tuple[float, ...]]
    living: frozenset[str]
    reached: frozenset[str]
    job: str
    made: MadeOf
    _taken: dict[str, tuple[OwnedActors, tuple[ProcessRef, ...]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the mesh."""
        return self.held.name

    @property
    def refs(self) -> tuple[ProcessRef, ...]:
        """Its processes, by rank."""
        return tuple(
            ProcessRef(each.process_id, each.agent_address, "", self.job)
            for each in self.held.processes
        )

    def adopt(self) -> ProcMesh:
        """Own the mesh from now on; returns at once.

        The owner is whoever calls; it is told of processes that have ended meanwhile.  Actors there
        that were spawned with ``restart=`` are owned with it: their policy and what is left of its
        budget hold on, for what has failed meanwhile too.

        Raises:
            ConfigError: It was adopted before.
        """
        runtime, refs, held = get_runtime(), self.refs, self.held
        names = names_of(refs)
        runtime.claim(names)
        extent = Extent(held.axes, held.sizes)
        owner = runtime.context().actor_key
        event = MeshOwned(held.mesh_id, held.name, owner, tuple(extent.points()), names)
        owned = OwnedProcs(held.mesh_id, held.name, refs, terms=_terms_of(held))
        lost = tuple(
            name
            for name, ref in zip(names, refs, strict=True)
            if ref.agent_address not in self.reached
        )
        made = (each for each in self.actors if each.made_of or each.made_in)
        kept = [self._take(each) for each in made if each.restart]
        with runtime.sending:
            runtime.io.post(lambda: _adopt_procs(runtime, owned, event, lost=lost, kept=kept))
        return ProcMesh(extent.region(), refs, name=held.name, mesh_id=held.mesh_id, owned=owned)

    def adopt_actors(self, name: str, cls: Callable[P, A]) -> A:
        """Own actors on the mesh from now on; the mesh itself was adopted before.

        Args:
            name: Of the actors.
            cls: Their class.

        Returns:
            The actors; their ``initialized`` raises where they never came to be.

        Raises:
            ConfigError: No such actors were made there.
        """
        found = [each for each in self.actors if each.name == name]
        if not found:
            raise ConfigError(
                what=f"no actors {name!r} on {self.name}",
                needed="they were not made there yet",
                to_do="spawn them on the mesh that was adopted",
            )
        held, runtime = found[-1], get_runtime()
        extent = Extent(held.axes, held.sizes)
        if held.mesh_id not in self._taken:
            actors = self._take(held)
            with runtime.sending:
                runtime.io.post(_adopt_actors, runtime, actors)
        owned, refs = self._taken[held.mesh_id]
        mesh: Any = ActorMesh(
            cast("type[Actor]", cls),
            extent.region(),
            refs,
            name=name,
            mesh_id=held.mesh_id,
            owned=owned,
        )
        return cast(A, mesh)

    def _take(self, held: ActorsHeld) -> _Actors:
        """Return actors as they are owned from now on, by whoever calls."""
        extent, refs = Extent(held.axes, held.sizes), self.refs
        owned = OwnedActors(held.mesh_id, held.name, extent)
        facts = (held.mesh_id, held.name, get_runtime().context().actor_key)
        on, past = held.on, self.budgets.get(held.mesh_id, ())
        owned.made_of, owned.made_in = self._made(held), held.made_in
        restart = held.restart if owned.made_of else None
        if restart is not None:
            refs = tuple(dataclasses.replace(ref, restarts=True) for ref in refs)
        points, names = tuple(extent.points()), names_of(refs)
        event = MeshOwned(*facts, points, names, on=on, restart=restart, past=past)
        self._taken[held.mesh_id] = owned, refs
        return owned, event, refs

    def _made(self, held: ActorsHeld) -> Sequence[bytes]:
        """Return what actors are made of; nothing where that was not written down, or is gone."""
        if not held.made_of:
            return self.made.read(held.made_in) if held.made_in else ()
        return unpack_parts(held.made_of)


_Actors = tuple[OwnedActors, MeshOwned, tuple[ProcessRef, ...]]


def _terms_of(held: ProcsHeld) -> ProcsTerms:
    if not held.terms:  # written down by an earlier version
        return ProcsTerms(({},) * len(held.processes))
    return msgspec.msgpack.decode(held.terms, type=ProcsTerms)


class _Nobody:
    """In the place of an agent that is gone."""

    def say(self, message: talk.ToAgent) -> None:
        """Do nothing."""


def _adopt_procs(
    runtime: Runtime,
    owned: OwnedProcs,
    event: MeshOwned,
    *,
    lost: tuple[ProcessName, ...],
    kept: Sequence[_Actors],
) -> None:
    """Take over processes; ``lost`` are those whose host was lost meanwhile.

    Actors with a policy come before the news of what has failed, which the policy is to answer.
    """
    hosts = tuple(
        host_of(ref)
        for ref, name in zip(owned.refs, event.processes, strict=True)
        if name not in lost
    )
    owned.agents = tuple(
        _Nobody() if name in lost else runtime.connections.agent(host_of(ref))
        for ref, name in zip(owned.refs, event.processes, strict=True)
    )
    runtime.supervisor.own(owned, event)
    for actors, its_event, _ in kept:
        runtime.supervisor.own(actors, its_event)
    reason = "its host was lost while there was no controller"
    runtime.lose_processes(lost, Fault("host_lost", reason, time_s=runtime.wall_clock.now()))
    owned.adopt(runtime.owner_of(owned.refs[0].job), runtime.workspaces)
    for actors, _, refs in kept:
        _link(runtime, actors, refs)
    for host in dict.fromkeys(hosts):
        lost_why = runtime.connections.agent(host).lost_why
        if lost_why:
            runtime.host_lost(host, lost_why)


def _adopt_actors(runtime: Runtime, actors: _Actors) -> None:
    owned, event, refs = actors
    runtime.supervisor.own(owned, event)
    _link(runtime, owned, refs)


def _link(runtime: Runtime, owned: OwnedActors, refs: tuple[ProcessRef, ...]) -> None:
    owned.links = tuple(runtime.connections.link(ref) for ref in refs)
    owned.link_to = lambda rank: runtime.connections.link(refs[rank])
    owned.adopt()


class Takeover:
    """One controller's turn at a run: what was left, and the record of what it holds.

    Args:
        path: The run's record; made if there is none.
        runtime: This process's.

    Raises:
        OSError: The record cannot be opened.
    """

    def __init__(self, path: Path, runtime: Runtime) -> None:
        self._runtime = runtime
        self.log = HoldingsLog(path)
        pid = os.getpid()
        stat = procfs.read_stat(pid)
        self.generation = self.log.begin(
            runtime.info.process_id, pid, stat.started if stat is not None else 0
        )
        self._before = self.log.state
        self._living: dict[str, frozenset[str]] = {}
        self._job = ""

    @property
    def controller_name(self) -> str:
        """Name for a socket at which no earlier controller listens, which may only be stopped."""
        return "controller" if self.generation == 1 else f"controller-{self.generation}"

    @property
    def hosts(self) -> Mapping[str, HostHeld]:
        """What earlier controllers have written down of hosts, by name."""
        return self._before.hosts

    def begin(self, job: str) -> None:
        """Write down what is owned in ``job`` from now on; from any thread."""
        self._job = job
        self._runtime.supervisor.record.keep(job, self.log)
        self._runtime.workspaces.update(self._before.workspaces)

    def hold(self, host: HostHeld) -> None:
        """Write down that a host works for the job; from any thread."""
        self._runtime.io.post(self._runtime.supervisor.record.host, self._job, host)

    def forget(self) -> None:
        """Write down that nothing is left to be adopted."""
        state = self.log.state
        self.log.record(*map(MeshLetGo, state.procs), *map(HostLetGo, state.hosts))
        self._before = self.log.state

    def end(self, *, nothing_is_left: bool = True) -> None:
        """Write down nothing any more, unless that nothing is left to be adopted."""
        if nothing_is_left:
            self.forget()
        self._runtime.supervisor.record.forget(self._job)

    # -- what is left ------------------------------------------------------------------------

    def ask(self, hosts: Sequence[HostRef], limit_s: float = _ASK_LIMIT_S) -> list[HostRef]:
        """Ask the agents of hosts what lives there; return those that do not answer.

        From any thread but the connections'.
        """
        answers = self._runtime.io.run(self._ask_all(hosts, limit_s), limit_s + _SPARE_S)
        living = {host.agent_address: found for host, found in answers if found is not None}
        self._living |= living
        return [host for host in hosts if host.agent_address not in living]

    async def _ask_all(
        self, hosts: Sequence[HostRef], limit_s: float
    ) -> list[tuple[HostRef, frozenset[str] | None]]:
        asked = [self._ask(host) for host in hosts]
        if asked:
            await asyncio.wait(asked, timeout=limit_s)
        return [
            (host, answer.result() if answer.done() else None)
            for host, answer in zip(hosts, asked, strict=True)
        ]

    def _ask(self, host: HostRef) -> asyncio.Future[frozenset[str]]:
        answer: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._runtime.on_owned[host] = answer.set_result
        self._runtime.connections.agent(host).say(talk.ListOwned())
        return answer

    def left(self) -> tuple[LeftProcs, ...]:
        """Return the meshes of processes that were left, the oldest first.

        Of hosts that were not asked, or did not answer, nothing lives.
        """
        state = self._before
        living = frozenset[str]().union(*self._living.values())
        return tuple(
            LeftProcs(
                held,
                state.actors_on(held.mesh_id),
                state.notes.get(held.mesh_id, {}),
                {each.mesh_id: _past_of(state, each) for each in state.actors_on(held.mesh_id)},
                living=living & {each.process_id for each in held.processes},
                reached=frozenset(self._living),
                job=self._job,
                made=self.log.made,
            )
            for held in state.procs.values()
        )

    def drop(self, left: LeftProcs) -> None:
        """Write down that nothing of a mesh is left, so that nobody looks for it again."""
        self.log.record(MeshLetGo(left.held.mesh_id))

    # -- budgets -------------------------------------------------------------------------------

    def budget(self, name: str, policy: Restart) -> KeptBudget:
        """Return a restart budget as it stood when it was last drawn upon.

        Args:
            name: Of whatever is started again; the same for each controller of the run.
            policy: What is allowed.
        """
        return KeptBudget(name, policy, self._before.budgets.get(name), write=self._write_budget)

    def _write_budget(self, used: BudgetUsed) -> None:
        # Not left to the loop: the start that follows would be counted by nobody who comes after.
        record = self._runtime.supervisor.record
        record.at_once(self._job, used)
        self._runtime.io.post(record.look, self._job)


def _past_of(state: Holdings, actors: ActorsHeld) -> tuple[float, ...]:
    used = state.budgets.get(actors.mesh_id)
    return used.past if used is not None else ()


def note(procs: ProcMesh, **notes: str) -> None:
    """Have a later controller know this of a mesh that is owned here (``LeftProcs.notes``)."""
    runtime = get_runtime()
    runtime.io.post(runtime.supervisor.record.noted, procs.mesh_id, notes)
