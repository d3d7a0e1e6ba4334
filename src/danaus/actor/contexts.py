"""Who is running: the actor, its place, its process."""

from __future__ import annotations

import contextvars
import functools
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from danaus.actor.place import Place
from danaus.actor.supervision_messages import ActorKey
from danaus.core.extent import Extent, Point
from danaus.wire.position import PositionBlock


@dataclass(frozen=True)
class ProcessInfo:
    """The process that code runs in.

    ``agent_address``, ``run_dir``, ``log_path`` and ``sockets`` (a folder of this host for unix
    sockets) are empty and ``position`` is None in a controller, which no agent watches.
    ``root_id`` is the job's controller, which listens at ``root_address``; empty: this is it.
    """

    process_id: str
    agent_address: str = ""
    run_dir: str = ""
    log_path: str = ""
    position: PositionBlock | None = None
    host: str = ""
    rank: int = 0
    sockets: str = ""
    root_id: str = ""
    root_address: str = ""

    @functools.cached_property
    def incarnation(self) -> int:
        """How often a process of this name was started before."""
        return incarnation_of(self.process_id)


class Creator(msgspec.Struct, frozen=True, array_like=True):
    """Who spawned an actor, and who spawned that one; travels with the order to make it.

    ``class_name`` is empty in the program itself.
    """

    name: str
    class_name: str
    proc_id: str
    place: Place
    creator: Creator | None = None

    @property
    def rank(self) -> Point:
        """Its place in its mesh."""
        return self.place.point

    def __str__(self) -> str:
        axes = f"[{self.rank}]" if self.place.axes else ""
        class_name = f" ({self.class_name})" if self.class_name else ""
        above = f"{self.creator} > " if self.creator is not None else ""
        return f"{above}{self.name}{axes}{class_name}"


@dataclass(frozen=True)
class Context:
    """Who runs, and where, as the runtime knows it (users: see ``instance``).

    Args:
        proc: The process.
        actor_name: Name of the actor's mesh; ``client`` in the program itself.
        actor_key: Identifies the actor in its process; None in the program itself.
        actor: The actor.
        point: Its place in its whole mesh.
        creator: Who spawned it; None: nobody, or a program that ended since.
    """

    proc: ProcessInfo
    actor_name: str = "client"
    actor_key: ActorKey | None = None
    actor: object | None = None
    point: Point = field(default_factory=lambda: Extent((), ()).point(0))
    creator: Creator | None = None

    def as_creator(self) -> Creator:
        """Return what those that it spawns know of it."""
        extent = self.point.extent
        place = Place(self.point.rank, extent.axes, extent.sizes)
        return Creator(self.actor_name, self.class_name, self.proc_id, place, self.creator)

    @property
    def actor_id(self) -> str:
        """The actor's id in its process; empty: the program itself."""
        return str(self.actor_key or "")

    @property
    def class_name(self) -> str:
        """The full name of the actor's class; empty: the program itself."""
        cls = type(self.actor)
        return f"{cls.__module__}.{cls.__qualname__}" if self.actor is not None else ""

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.actor_name

    @property
    def rank(self) -> Point:
        """The actor's place in its mesh."""
        return self.point

    @property
    def proc_id(self) -> str:
        """The process that it runs in."""
        return self.proc.process_id

    @property
    def is_cancelled(self) -> bool:
        """Tell whether the call that runs here was given up by its caller.

        An ``async`` endpoint is cancelled where it awaits; a plain one that runs for long can
        look at this now and then, and return.
        """
        message = working.get(None)
        return message is not None and message.is_cancelled

    @property
    def message_rank(self) -> Point:
        """The actor's place in what was called: its mesh, or a part of that.

        Of one that ``choose`` took, its place in what it was chosen from.
        """
        message = working.get(None)
        if message is None or message.place is None:
            return self.point
        return message.place.point


class Handled(Protocol):
    """A message that is being handled."""

    is_cancelled: bool

    @property
    def place(self) -> Place | None:
        """Where the actor stands in what was called; None: in its mesh."""


working: contextvars.ContextVar[Handled | None] = contextvars.ContextVar("danaus_message")
"""What the code that runs here was called by."""
current: contextvars.ContextVar[Context | None] = contextvars.ContextVar("danaus_actor")


def act_as(context: Context) -> None:
    """Run from here on as an actor, and for no message."""
    current.set(context)
    working.set(None)


def incarnation_of(process_id: str) -> int:
    """Return the incarnation that a process id ends with."""
    digits = process_id.rpartition("#")[2]
    return int(digits) if digits.isdigit() else 0
