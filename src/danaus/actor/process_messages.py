"""What processes say to each other about the actors that live in them.

Users' objects travel behind these structs as further parts of the same message, packed by
``wire.codec``; they are unpacked on the thread that needs them, never on the connection's.
"""

from __future__ import annotations

import msgspec

from danaus.actor.cast_messages import Cast, Gathered
from danaus.actor.contexts import Creator
from danaus.actor.place import Place
from danaus.wire.codec import Codec


class SpawnActor(msgspec.Struct, frozen=True, tag="spawn", array_like=True):
    """Make an actor here; parts: ``(class, args, kwargs)``.

    ``axes`` and ``sizes`` are the extent of its mesh.  ``again``: one that lives begins anew.
    ``creator`` spawned it.

    The session it arrives on is that of the mesh's owner.  Answered by ``Returned`` once the
    constructor has returned, by ``Raised`` if it raised.
    """

    call: int
    mesh_id: str
    name: str
    rank: int
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    again: bool = False
    creator: Creator | None = None


class Deliver(msgspec.Struct, frozen=True, tag="deliver", array_like=True):
    """A message for an actor; parts: ``(args, kwargs)``.

    ``call`` 0: nobody waits for an answer.  ``number`` counts from 1 per sender and receiver
    (A-1); ``incarnation`` is the receiver's, a message for another is refused.  ``place``: where
    the receiver stands in what was called; None: nobody said.
    """

    call: int
    mesh_id: str
    rank: int
    incarnation: int
    sender: str
    number: int
    endpoint: str
    place: Place | None = None


class Route(msgspec.Struct, frozen=True, array_like=True):
    """What many messages of a session have in common, said once: see ``Deliver``."""

    number: int
    mesh_id: str
    rank: int
    incarnation: int
    sender: str
    endpoint: str
    place: Place | None = None


class DeliverMany(msgspec.Struct, frozen=True, tag="many", array_like=True):
    """Small messages together: ``(route, call, number, arguments)`` each, in order.

    ``routes`` are those that no earlier message of the session has named.
    """

    routes: list[Route]
    messages: list[tuple[int, int, int, bytes]]


class DeliverAgain(msgspec.Struct, frozen=True, tag="deliver_again", array_like=True):
    """A message that the actor may have had by a ``Cast``."""

    message: Deliver

    @property
    def call(self) -> int:
        """The call that it is of."""
        return self.message.call


class CancelCall(msgspec.Struct, frozen=True, tag="cancel", array_like=True):
    """Nobody waits any more for the answer to this ``Deliver`` of the same session."""

    call: int


class AdoptActor(msgspec.Struct, frozen=True, tag="adopt", array_like=True):
    """The session it arrives on is that of the owner of an actor's mesh from now on.

    Answered by ``Returned``; by ``Gone`` if there is no such actor.  What the actor could not tell
    the owner before follows.  Where it is known what the actor is made of, that comes along, as in
    ``SpawnActor``: one that was never made here is made now.
    """

    call: int
    mesh_id: str
    rank: int
    name: str = ""
    axes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()


class StopActor(msgspec.Struct, frozen=True, tag="stop", array_like=True):
    """Take no new message, finish those at hand, clean up; answered by ``Returned``.

    Who calls later is told ``reason``.
    """

    call: int
    mesh_id: str
    rank: int
    reason: str = ""


class Returned(msgspec.Struct, frozen=True, tag="returned", array_like=True):
    """The answer to ``call``; parts: the value."""

    call: int


class ReturnedMany(msgspec.Struct, frozen=True, tag="values", array_like=True):
    """Small answers together: ``(call, value)`` each."""

    values: list[tuple[int, bytes]]


class Raised(msgspec.Struct, frozen=True, tag="raised", array_like=True):
    """The endpoint raised; parts: the exception, none where it cannot be pickled."""

    call: int
    actor: str
    endpoint: str
    exception: str
    traceback: str


class Gone(msgspec.Struct, frozen=True, tag="gone", array_like=True):
    """The actor is not here (any more), or never came to be."""

    call: int
    actor: str
    why: str


class SetLogLevel(msgspec.Struct, frozen=True, tag="set_log_level", array_like=True):
    """Have this process's root logger write what is of this level or above."""

    level: int


class PortValue(msgspec.Struct, frozen=True, tag="port_value", array_like=True):
    """For a port of the receiving process; parts: the value.  ``rank`` -1: of nobody."""

    port: int
    rank: int


class PortRaised(msgspec.Struct, frozen=True, tag="port_raised", array_like=True):
    """An exception in place of a value; parts: as of ``Raised``.

    ``as_is``: the exception itself was sent, it is not what an endpoint of ``actor`` raised.
    """

    port: int
    rank: int
    as_is: bool
    actor: str
    endpoint: str
    exception: str
    traceback: str


class ActorFailed(msgspec.Struct, frozen=True, tag="actor_failed", array_like=True):
    """To the owner's process: an endpoint raised with nobody waiting; parts: the ``Fault``."""

    mesh_id: str
    rank: int
    fatal: bool


class FailurePassedUp(msgspec.Struct, frozen=True, tag="failure_passed_up", array_like=True):
    """To the owner's process: something that this actor owns failed and it did not handle it.

    Parts: the ``MeshFailure``.
    """

    mesh_id: str
    rank: int


Request = (
    SpawnActor
    | AdoptActor
    | Deliver
    | DeliverMany
    | DeliverAgain
    | Cast
    | CancelCall
    | StopActor
    | SetLogLevel
    | PortValue
    | PortRaised
)
Answer = Returned | ReturnedMany | Gathered | Raised | Gone | ActorFailed | FailurePassedUp
ProcessMessage = Request | Answer

CODEC: Codec[ProcessMessage] = Codec(ProcessMessage)
