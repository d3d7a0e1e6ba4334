"""What a controller holds: hosts, meshes of processes and actors, restart budgets (A-12).

Owns the state, the entries that change it, one per line of a file, and how lines become a state
again.  Pure: the file is ``holdings_log``'s.

Invariants:
    A-12: replaying what was written gives the state that wrote it, whatever the last line lost.
    What a line says that this version does not know is left out and counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from danaus.actor.restart import Restart

# -- entries ------------------------------------------------------------------------------------


class ControllerBegan(msgspec.Struct, frozen=True, tag="controller_began"):
    """A controller has taken over; its ``generation`` is above all before."""

    generation: int
    process_id: str
    pid: int
    started: int


class HostHeld(msgspec.Struct, frozen=True, tag="host_held"):
    """A host works for the run, as its agent at this address does.

    ``agent_pid`` and ``agent_started`` mean something on the agent's own machine.
    """

    name: str
    agent_address: str
    agent_pid: int = 0
    agent_started: int = 0


class HostLetGo(msgspec.Struct, frozen=True, tag="host_let_go"):
    """A host works for the run no more."""

    name: str


class WorkspaceHeld(msgspec.Struct, frozen=True, tag="workspace_held"):
    """Processes that this agent starts from now on import from ``tree``, a folder of its host."""

    agent_address: str
    tree: str


class HeldProcess(msgspec.Struct, frozen=True):
    """One process of a mesh; the incarnation is part of its id."""

    process_id: str
    agent_address: str


class ProcsHeld(msgspec.Struct, frozen=True, tag="procs_held"):
    """A mesh of processes is about to be started, or was adopted.

    ``owner`` is the name of the owning actor, empty for the main program; ``terms`` is how the
    processes are started, packed.
    """

    mesh_id: str
    name: str
    owner: str
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    processes: tuple[HeldProcess, ...]
    terms: bytes = b""


class ProcessBegan(msgspec.Struct, frozen=True, tag="process_began"):
    """A process of a mesh that is held was forked."""

    process_id: str
    pid: int


class ActorsHeld(msgspec.Struct, frozen=True, tag="actors_held"):
    """Actors are about to be made on the processes ``on``, or were adopted.

    ``restart`` is their policy, ``made_of`` their class and arguments, packed; empty where there is
    no policy.  What is too large for a line lies in a file that ``made_in`` names.
    """

    mesh_id: str
    name: str
    owner: str
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    on: str
    restart: Restart | None = None
    made_of: bytes = b""
    made_in: str = ""


class MeshNoted(msgspec.Struct, frozen=True, tag="mesh_noted"):
    """What its owner wants to know again of a mesh; later notes of a name replace earlier ones."""

    mesh_id: str
    notes: dict[str, str]


class MeshLetGo(msgspec.Struct, frozen=True, tag="mesh_let_go"):
    """A mesh has ended."""

    mesh_id: str


class BudgetUsed(msgspec.Struct, frozen=True, tag="budget_used"):
    """How much of a restart budget is used.

    ``past`` are the failures that may still count, in seconds of the machine's monotonic clock;
    ``total`` is how many there were in all.  One that is named after a mesh of actors is its
    policy's, in seconds of the machine's wall clock, and ends with the mesh.
    """

    name: str
    past: tuple[float, ...]
    total: int


Entry = (
    ControllerBegan
    | HostHeld
    | HostLetGo
    | WorkspaceHeld
    | ProcsHeld
    | ProcessBegan
    | ActorsHeld
    | MeshNoted
    | MeshLetGo
    | BudgetUsed
)


# -- state --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holdings:
    """What is held.

    Args:
        controller: Whoever holds it; None: nobody ever did.
        hosts: By name.
        procs: Meshes of processes by id, the oldest first.
        actors: Meshes of actors by id, the oldest first.
        pids: Of processes, by process id.
        notes: Of meshes, by id.
        budgets: By name.
        workspaces: Folders of code that were brought to hosts, by the addresses of their agents.
    """

    controller: ControllerBegan | None = None
    hosts: Mapping[str, HostHeld] = field(default_factory=dict)
    procs: Mapping[str, ProcsHeld] = field(default_factory=dict)
    actors: Mapping[str, ActorsHeld] = field(default_factory=dict)
    pids: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    budgets: Mapping[str, BudgetUsed] = field(default_factory=dict)
    workspaces: Mapping[str, str] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """Of the newest controller, 0 if there was none."""
        return self.controller.generation if self.controller is not None else 0

    def actors_on(self, mesh_id: str) -> tuple[ActorsHeld, ...]:
        """Return the meshes of actors on a mesh of processes, the oldest first."""
        return tuple(each for each in self.actors.values() if each.on == mesh_id)


def apply(state: Holdings, entry: Entry) -> Holdings:
    """Return the state after an entry."""
    match entry:
        case ControllerBegan():
            return replace(state, controller=entry)
        case HostHeld():
            return replace(state, hosts={**state.hosts, entry.name: entry})
        case HostLetGo(name):
            return _let_host_go(state, name)
        case WorkspaceHeld(agent_address, tree):
            return replace(state, workspaces={**state.workspaces, agent_address: tree})
        case BudgetUsed():
            return replace(state, budgets={**state.budgets, entry.name: entry})
        case _:
            return _apply_to_mesh(state, entry)


def _apply_to_mesh(
    state: Holdings, entry: ProcsHeld | ProcessBegan | ActorsHeld | MeshNoted | MeshLetGo
) -> Holdings:
    match entry:
        case ProcsHeld():
            return replace(state, procs={**state.procs, entry.mesh_id: entry})
        case ProcessBegan(process_id, pid):
            return replace(state, pids={**state.pids, process_id: pid})
        case ActorsHeld():
            return replace(state, actors={**state.actors, entry.mesh_id: entry})
        case MeshNoted(mesh_id, notes):
            merged = {**state.notes.get(mesh_id, {}), **notes}
            return replace(state, notes={**state.notes, mesh_id: merged})
        case MeshLetGo(mesh_id):
            return _let_go(state, mesh_id)


def _let_host_go(state: Holdings, name: str) -> Holdings:
    host = state.hosts.get(name)
    gone = (host.agent_address,) if host is not None else ()
    return replace(
        state,
        hosts=_without(state.hosts, (name,)),
        workspaces=_without(state.workspaces, gone),
    )


def _let_go(state: Holdings, mesh_id: str) -> Holdings:
    """A mesh takes along what is on it."""
    ended = (mesh_id, *(each.mesh_id for each in state.actors_on(mesh_id)))
    procs = state.procs.get(mesh_id)
    gone = tuple(each.process_id for each in procs.processes) if procs is not None else ()
    return replace(
        state,
        procs=_without(state.procs, ended),
        actors=_without(state.actors, ended),
        notes=_without(state.notes, ended),
        pids=_without(state.pids, gone),
        budgets=_without(state.budgets, ended),
    )


def entries_of(state: Holdings) -> tuple[Entry, ...]:
    """Return the fewest entries that give this state."""
    notes = (MeshNoted(mesh_id, dict(each)) for mesh_id, each in state.notes.items())
    return (
        *((state.controller,) if state.controller is not None else ()),
        *state.hosts.values(),
        *(WorkspaceHeld(address, tree) for address, tree in state.workspaces.items()),
        *state.procs.values(),
        *(ProcessBegan(process_id, pid) for process_id, pid in state.pids.items()),
        *state.actors.values(),
        *notes,
        *state.budgets.values(),
    )


# -- lines --------------------------------------------------------------------------------------

_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def line_of(entry: Entry) -> bytes:
    """Return the line that says an entry."""
    return msgspec.json.encode(entry) + b"\n"


@dataclass(frozen=True)
class Replayed:
    """What lines come to: the state, and how many lines could not be read."""

    state: Holdings
    num_dropped: int = 0


def replay(data: bytes) -> Replayed:
    """Return the state that a file's bytes tell; a last line without its end does not count."""
    whole, _, torn = data.rpartition(b"\n")
    state, dropped = Holdings(), int(bool(torn))
    for line in whole.split(b"\n"):
        if not line:
            continue
        try:
            entry = _DECODER.decode(line)
        except msgspec.MsgspecError:
            dropped += 1
        else:
            state = apply(state, entry)
    return Replayed(state, dropped)


def lines_of(state: Holdings) -> bytes:
    """Return the fewest lines that say a state."""
    return b"".join(map(line_of, entries_of(state)))


K = TypeVar("K")
V = TypeVar("V")


def _without(items: Mapping[K, V], names: Iterable[K]) -> dict[K, V]:
    gone = set(names)
    return {name: item for name, item in items.items() if name not in gone}
