"""The meshes that were spawned from this process: what became of each point, and how they end.

On the connections' loop.  What a failure means is decided in ``supervision``; who is told, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from danaus.actor import agent_messages as talk
from danaus.actor.binding import Binding
from danaus.actor.contexts import Creator
from danaus.actor.failure import Fault
from danaus.actor.future import Future
from danaus.actor.identity import HostRef, ProcessRef, host_name
from danaus.actor.links import Link, Parts
from danaus.actor.log_window import LogWindow
from danaus.actor.process_messages import (
    AdoptActor,
    PortRaised,
    Raised,
    SpawnActor,
    StopActor,
)
from danaus.actor.supervision_messages import MeshOwned, ProcessName
from danaus.core.errors import ActorError, SupervisionError
from danaus.core.extent import Extent
from danaus.wire.lifecycle import KillProcess

GRACE_S = 5.0


class AgentVoice(Protocol):
    """A host agent, as it is spoken to from here."""

    def say(self, message: talk.ToAgent) -> None:
        """Send."""


class OwnedMesh:
    """What process meshes and actor meshes share here.

    Attributes:
        on: The mesh of processes that it lives on; None: it is one itself.
        event: What supervision was told of it.
        initialized: Settled once every point exists.
        ended: Settled once the mesh has been stopped.
        end_error: What a ``__cleanup__`` raised, for who waits for the end.
        stop_reason: Why it is stopped, for those who call later; empty: nobody said.
    """

    def __init__(self, mesh_id: str, name: str) -> None:
        self.mesh_id = mesh_id
        self.on: str | None = None
        self.event: MeshOwned | None = None
        self.name = name
        self.initialized: Future[None] = Future(f"{name} to come up")
        self.ended: Future[None] = Future(f"{name} to end")
        self.end_error: Exception | None = None
        self.stop_reason = ""

    def refuse(self, error: Exception) -> None:
        """Never come to be, and so have ended."""
        self.initialized.set_error(error)
        self.ended.set_value(None)

    def end(self, then: Callable[[], None]) -> None:
        """Stop the mesh; call ``then`` once nothing of it is left."""
        raise NotImplementedError

    def start_again(self, ranks: Sequence[int]) -> None:
        """Start these points once more (A-9)."""
        raise NotImplementedError


@dataclass(frozen=True)
class ProcsTerms:
    """How the processes of a mesh are started.

    Args:
        env: Variables to set in the environment of each, by rank.
        per_host: How many of them each host runs.
        binding: Which CPUs and memory they get.
        bootstrap: What each calls first, packed.
    """

    env: tuple[dict[str, str], ...]
    per_host: int = 1
    binding: Binding = field(default_factory=Binding)
    bootstrap: tuple[bytes, ...] = ()


class OwnedProcs(OwnedMesh):
    """Processes on one or more hosts.

    Args:
        mesh_id: Of the mesh.
        name: Of the mesh.
        refs: The processes, by rank.
        terms: How they are started.

    Attributes:
        terms: Likewise.
        agents: The agent of each, by rank; set before anything else is done.
        grace_s: Seconds that each has to end by itself once the mesh is stopped.
        kill_reason: Why they are killed instead; empty: they are asked to end.
        logs: Where what they write is shown; None: nowhere.
    """

    def __init__(
        self, mesh_id: str, name: str, refs: Sequence[ProcessRef], *, terms: ProcsTerms
    ) -> None:
        super().__init__(mesh_id, name)
        self.refs = tuple(refs)
        self.terms = terms
        self.agents: tuple[AgentVoice, ...] = ()
        self.grace_s = GRACE_S
        self.kill_reason = ""
        self.logs: LogWindow | None = None
        self.pids: dict[str, int] = {}
        self._coming = {ref.process_id for ref in refs}
        self._living = {ref.process_id for ref in refs}
        self._then: Callable[[], None] | None = None
        self._owner: talk.Owner | None = None
        self._workspaces: Mapping[str, str] = {}
        self._is_ending = False

    def start(self, owner: talk.Owner, workspaces: Mapping[str, str]) -> None:
        """Ask each agent for its processes; ``workspaces`` are folders by agent, now and later."""
        self._owner, self._workspaces = owner, workspaces
        self._start(range(len(self.refs)), owner)

    def _start(self, ranks: Sequence[int], owner: talk.Owner) -> None:
        terms = self.terms
        for agent, first in {self.agents[rank]: rank for rank in reversed(ranks)}.items():
            workspace = self._workspaces.get(self.refs[first].agent_address, "")
            wanted = tuple(
                talk.NewProcess(
                    self.refs[rank].process_id,
                    rank,
                    terms.env[rank],
                    rank % terms.per_host,
                    terms.per_host,
                )
                for rank in ranks
                if self.agents[rank] is agent
            )
            how = (terms.binding, terms.bootstrap, workspace)
            agent.say(talk.StartProcesses(self.mesh_id, wanted, owner, *how))

    def replace(self, ranks: Sequence[int]) -> tuple[ProcessName, ...]:
        """Have others take the place of processes that have ended; return their names."""
        refs = list(self.refs)
        for rank in ranks:
            old = refs[rank]
            heir = ProcessName(old.job, old.process_id).heir.process_id
            refs[rank] = replace(old, process_id=heir)
            if old.process_id in self._coming:  # whoever waits for it waits for its heir
                self._coming ^= {old.process_id, heir}
        self.refs = tuple(refs)
        return tuple(ProcessName(refs[rank].job, refs[rank].process_id) for rank in ranks)

    def start_again(self, ranks: Sequence[int]) -> None:
        """Ask for processes that take the place of others."""
        if self._owner is None or self._is_ending:
            return
        self._living.update(self.refs[rank].process_id for rank in ranks)
        self._start(ranks, self._owner)
        if self.logs is not None:
            self.forward_logs(True)

    def adopt(self, owner: talk.Owner, workspaces: Mapping[str, str]) -> None:
        """Have each agent take this process for the owner of processes that are there (A-12)."""
        self._owner, self._workspaces = owner, workspaces
        for agent, process_ids in self._by_agent():
            agent.say(talk.AdoptProcesses(owner.process_id, process_ids))

    def started(self, process_id: str, pid: int) -> None:
        """One was forked."""
        self.pids[process_id] = pid

    def ready(self, process_id: str) -> None:
        """One listens."""
        self._coming.discard(process_id)
        if not self._coming:
            self.initialized.set_value(None)

    def gone(self, process_id: str, fault: Fault) -> None:
        """One has ended."""
        self._living.discard(process_id)
        if process_id in self._coming:
            self.initialized.set_error(supervision_error(process_id, fault.reason, fault))
        if not self._living and self.logs is not None:
            self.logs.flush()
        if not self._living and self._then is not None:
            then, self._then = self._then, None
            then()

    def end(self, then: Callable[[], None]) -> None:
        """Stop what lives."""
        self._is_ending = True
        if not self._living:
            then()
            return
        self._then = then
        for agent, process_ids in self._by_agent():
            if self.kill_reason:
                for process_id in process_ids:
                    agent.say(KillProcess(process_id, self.kill_reason))
            else:
                agent.say(talk.StopProcesses(process_ids, self.grace_s, self.stop_reason))

    def forward_logs(self, on: bool) -> None:
        """Have the agents send what the processes write."""
        for agent, process_ids in self._by_agent():
            agent.say(talk.ForwardLogs(process_ids, on))

    def _by_agent(self) -> list[tuple[AgentVoice, tuple[str, ...]]]:
        return [
            (
                agent,
                tuple(
                    ref.process_id
                    for each, ref in zip(self.agents, self.refs, strict=True)
                    if each is agent and ref.process_id in self._living
                ),
            )
            for agent in dict.fromkeys(self.agents)
        ]


class OwnedActors(OwnedMesh):
    """Actors of one class, one on each process of a mesh.

    Args:
        mesh_id: Of the mesh.
        name: Of the mesh.
        extent: Of the mesh.

    Attributes:
        links: To the processes, by rank; set before anything else is done.
        link_to: Returns the link to where a rank is now.
        made_of: Class and arguments, packed, of actors that are started again; set before anything
            else is done.
        made_in: The file in which they are written down; empty: in none.
        creator: Who spawned them; None: a program before this one.
    """

    def __init__(self, mesh_id: str, name: str, extent: Extent) -> None:
        super().__init__(mesh_id, name)
        self.links: tuple[Link, ...] = ()
        self.link_to: Callable[[int], Link] = lambda rank: self.links[rank]
        self.made_of: Parts = ()
        self.made_in = ""
        self.creator: Creator | None = None
        self._extent = extent

    def spawn(self, parts: Parts) -> None:
        """Have the actors made."""
        waiting = _All(self, len(self.links), self._all_made)
        for rank, link in enumerate(self.links):

            def build(call: int, rank: int = rank) -> SpawnActor:
                return self._order(call, rank)

            link.post(build, parts, waiting)

    def _order(self, call: int, rank: int, *, again: bool = False) -> SpawnActor:
        place = (rank, self._extent.axes, self._extent.sizes)
        return SpawnActor(call, self.mesh_id, self.name, *place, again, self.creator)

    def start_again(self, ranks: Sequence[int]) -> None:
        """Have actors made anew, with what they were made with, where their ranks are now."""
        links = list(self.links)
        for rank in ranks:
            links[rank] = self.link_to(rank)
            again = self._order(0, rank, again=True)
            links[rank].post(lambda _, again=again: again, self.made_of, None)  # type: ignore[misc]
        self.links = tuple(links)

    def adopt(self) -> None:
        """Have actors that are there take this process for their owner (A-12)."""
        waiting = _All(self, len(self.links), self._all_made)
        for rank, link in enumerate(self.links):

            def build(call: int, rank: int = rank) -> AdoptActor:
                place = (rank, self.name, self._extent.axes, self._extent.sizes)
                return AdoptActor(call, self.mesh_id, *place)

            link.post(build, self.made_of, waiting)

    def end(self, then: Callable[[], None]) -> None:
        """Stop every actor that lives."""

        def all_ended(error: Exception | None) -> None:
            self.end_error = error if isinstance(error, ActorError) else None
            then()

        waiting = _All(self, len(self.links), all_ended)
        for rank, link in enumerate(self.links):

            def build(call: int, rank: int = rank) -> StopActor:
                return StopActor(call, self.mesh_id, rank, self.stop_reason)

            link.post(build, (), waiting)

    def _all_made(self, error: Exception | None) -> None:
        if error is None:
            self.initialized.set_value(None)
        else:
            self.initialized.set_error(error)


class _All:
    """Waits for one answer from each point."""

    any_thread = False

    def __init__(
        self, mesh: OwnedMesh, num_points: int, then: Callable[[Exception | None], None]
    ) -> None:
        self._mesh = mesh
        self._left = num_points
        self._then = then
        self._error: Exception | None = None

    def returned(self, parts: Parts) -> None:
        self._one(None)

    def raised(self, message: Raised, parts: Parts) -> None:
        self._one(actor_error(message))

    def gone(self, why: str, fault: Fault | None) -> None:
        self._one(supervision_error(self._mesh.name, why, fault))

    def _one(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._then(self._error)


def supervision_error(actor: str, why: str, fault: Fault | None) -> SupervisionError:
    """Return what a caller is told of something that is gone (A-4)."""
    if fault is None:
        return SupervisionError(actor=actor, why=why)
    return SupervisionError(
        actor=actor,
        why=why,
        exit_code=fault.exit_code,
        signal=fault.signal,
        log_tail=fault.log_tail,
    )


def actor_error(message: Raised | PortRaised) -> ActorError:
    """Return what a caller is told of an endpoint that raised (A-4)."""
    return ActorError(message.actor, message.endpoint, message.exception, message.traceback)


def host_of(ref: ProcessRef) -> HostRef:
    """Return the host that a process lives on."""
    return HostRef(host_name(ref.process_id), ref.agent_address, ref.job)
