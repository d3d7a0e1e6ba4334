"""What the supervision machine hears and orders: its events and instructions, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.restart import Restart


class ActorKey(NamedTuple):
    """One actor: its mesh and its rank there."""

    mesh_id: str
    rank: int

    def __str__(self) -> str:
        return f"{self.mesh_id}/{self.rank}"


class ProcessName(NamedTuple):
    """One process of one job: a controller may run several jobs."""

    job: str
    process_id: str

    @property
    def heir(self) -> ProcessName:
        """The process that takes its place: the next incarnation."""
        name, _, incarnation = self.process_id.rpartition("#")
        return ProcessName(self.job, f"{name}#{int(incarnation) + 1}")


# -- events ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeshOwned:
    """A mesh was spawned here.  ``owner`` None is the root; ``on`` the processes below actors.

    ``restart`` is what is done about failures of actors before their owner is told, ``past`` when
    failures were that count already.
    """

    mesh_id: str
    name: str
    owner: ActorKey | None
    points: tuple[Mapping[str, int], ...]
    processes: tuple[ProcessName, ...]
    on: str | None = None
    restart: Restart | None = None
    past: tuple[float, ...] = ()


@dataclass(frozen=True)
class ActorHosted:
    """An actor lives here; ``remote`` tells that its mesh's owner is in another process."""

    actor: ActorKey
    name: str
    point: Mapping[str, int]
    remote: bool


@dataclass(frozen=True)
class ProcessesGone:
    """Processes ended, together and for one reason."""

    processes: tuple[ProcessName, ...]
    fault: Fault


@dataclass(frozen=True)
class ActorRaised:
    """An actor of a mesh owned here failed; ``fatal``: it never came to be."""

    actor: ActorKey
    fault: Fault
    fatal: bool = False


@dataclass(frozen=True)
class FailurePassed:
    """An actor of a mesh owned here did not handle a failure of something that it owns."""

    actor: ActorKey
    failure: MeshFailure


@dataclass(frozen=True)
class Answered:
    """An owner's ``__supervise__`` came back; ``raised`` is set where it raised."""

    owner: ActorKey
    handled: bool
    raised: Fault | None = None


@dataclass(frozen=True)
class StopAsked:
    """Someone wants a mesh to end."""

    mesh_id: str


@dataclass(frozen=True)
class MeshEnded:
    """A mesh has ended; whatever was on it has too."""

    mesh_id: str


@dataclass(frozen=True)
class ActorLeaving:
    """An actor that lives here is to end; None: everything that the root owns is."""

    actor: ActorKey | None


@dataclass(frozen=True)
class ActorGone:
    """An actor that lived here has cleaned up and is no more."""

    actor: ActorKey


Event = (
    MeshOwned
    | ActorHosted
    | ProcessesGone
    | ActorRaised
    | FailurePassed
    | Answered
    | StopAsked
    | MeshEnded
    | ActorLeaving
    | ActorGone
)

# -- instructions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskOwner:
    """Run ``__supervise__`` of an actor that lives here; answer with ``Answered``."""

    owner: ActorKey
    failure: MeshFailure


@dataclass(frozen=True)
class PassUp:
    """Tell the process that owns this actor's mesh (``FailurePassed`` there)."""

    actor: ActorKey
    failure: MeshFailure


@dataclass(frozen=True)
class CallFaultHook:
    """Nobody handled it."""

    failure: MeshFailure


@dataclass(frozen=True)
class EndMesh:
    """Stop a mesh, then say ``MeshEnded``."""

    mesh_id: str


@dataclass(frozen=True)
class CleanUp:
    """Everything the actor owned has ended: run its ``__cleanup__``, then say ``ActorGone``."""

    actor: ActorKey | None


@dataclass(frozen=True)
class StartAgain:
    """Start ranks of meshes again, after a while: processes first, then the actors on them.

    Actors whose process lives begin anew where they are.
    """

    procs: tuple[tuple[str, tuple[int, ...]], ...]
    actors: tuple[tuple[str, tuple[int, ...]], ...]
    after_s: float
    reason: str


Instruction = StartAgain | AskOwner | PassUp | CallFaultHook | EndMesh | CleanUp
Instructions = tuple[Instruction, ...]
