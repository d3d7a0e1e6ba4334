"""Who runs, as users ask for it: the actor, what it can do about itself, and the process below it.

Owns ``Context`` and ``Instance``, which know meshes.  What the runtime itself knows of whoever
runs is in ``contexts``.
"""

from __future__ import annotations

from danaus.actor import contexts
from danaus.actor.contexts import Creator
from danaus.actor.here import this_proc
from danaus.actor.mesh import ProcMesh
from danaus.actor.process_runtime import get_runtime
from danaus.core.errors import ConfigError
from danaus.core.extent import Point


class Instance:
    """An actor, or the program itself, at what it runs now.

    Args:
        who: The same as the runtime knows it.
    """

    def __init__(self, who: contexts.Context) -> None:
        self._who = who

    @property
    def name(self) -> str:
        """The actor's name; ``client`` in the program itself."""
        return self._who.actor_name

    @property
    def class_name(self) -> str:
        """The full name of the actor's class; empty: the program itself."""
        return self._who.class_name

    @property
    def rank(self) -> Point:
        """The actor's place in its whole mesh."""
        return self._who.point

    @property
    def actor_id(self) -> str:
        """The actor's id in its process; empty: the program itself."""
        return self._who.actor_id

    @property
    def proc_id(self) -> str:
        """The process that it runs in."""
        return self._who.proc_id

    @property
    def proc(self) -> ProcMesh:
        """The same process as a mesh of one, to spawn on (``this_proc``)."""
        return this_proc()

    @property
    def creator(self) -> Creator | None:
        """Who spawned the actor; None: nobody, or it is owned by a later program."""
        return self._who.creator

    def stop(self, reason: str = "") -> None:
        """Have this actor take nothing more, and end once what it has begun is done.

        Args:
            reason: What those are told who call later.

        Raises:
            ConfigError: The program itself is no actor.
        """
        if self._who.actor_key is None:
            raise ConfigError(
                what="the program itself cannot be stopped as an actor is",
                needed="a call from within an actor",
                to_do="call shutdown_context()",
            )
        get_runtime().stop_actor(self._who.actor_key, reason)

    def __repr__(self) -> str:
        return str(self._who.as_creator())


class Context(contexts.Context):
    """What ``context()`` returns: who runs, and where."""

    @property
    def actor_instance(self) -> Instance:
        """Who runs, and what can be done about it (Monarch's name)."""
        return Instance(self)


def context() -> Context:
    """Return who calls: the actor and its place, or this program."""
    who = get_runtime().context()
    return Context(
        who.proc, who.actor_name, who.actor_key, who.actor, who.point, creator=who.creator
    )
