"""One message on its way through an actor, and what its code may end in."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from danaus.actor.attempt import exits
from danaus.actor.contexts import Context, working
from danaus.actor.endpoints import EndpointSpec
from danaus.actor.failure import Fault
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Live, Peer
from danaus.actor.loop_thread import LoopThread
from danaus.actor.place import Place
from danaus.actor.ports import Port, PortTable, Reply
from danaus.actor.process_messages import Deliver
from danaus.core.clock import Clock
from danaus.wire.codec import pack, unpack
from danaus.wire.frame import Buffer
from danaus.wire.reading import SharedReading


class CodeHost(Protocol):
    """The process, as what runs users' code sees it."""

    io: LoopThread
    wall_clock: Clock

    @property
    def idle_reading(self) -> SharedReading | None:
        """What an actor's own thread does while it has nothing to do, if anything."""

    @property
    def user_loop(self) -> LoopThread:
        """The loop for users' ``async`` code."""

    def process_should_end(self, code: int) -> None:
        """Users' code called ``sys.exit``."""


class Work(msgspec.Struct, eq=False):
    """One message on its way through the actor.

    What is known once it may start: ``spec``, None where there is no such endpoint, and whether it
    is plain: runs on the actor's own thread.
    """

    message: Deliver
    parts: Sequence[Buffer]
    peer: Peer
    spec: EndpointSpec | None = None
    is_cancelled: bool = False
    task: asyncio.Task[Any] | None = None
    is_plain: bool = True

    @property
    def place(self) -> Place | None:
        """Where the actor stands in what was called."""
        return self.message.place


def constructor_of(parts: Sequence[Buffer]) -> Any:
    """Return an actor's class, and what it is made with.

    Raises:
        Exception: Whatever unpickling them raises.
    """
    first = parts[0]
    return first.value if isinstance(first, Live) else unpack(parts)


def opened(
    work: Work, me: Context, ports: PortTable
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return what a message has run, and with what; from now on this is what runs here.

    Raises:
        AttributeError: The actor has no such endpoint.
        Exception: Whatever unpickling the arguments raises.
    """
    if work.spec is None:
        known = sorted(getattr(me.actor, "__endpoints__", ()))
        raise AttributeError(
            f"{me.actor_name} has no endpoint {work.message.endpoint!r}: there are {known}"
        )
    working.set(work)
    args, kwargs = unpack(work.parts)
    if work.spec.explicit_port:
        name = f"{me.actor_name}[{me.point}]"
        call, endpoint = work.message.call, work.message.endpoint
        number = ports.open_reply(Reply(me.actor_key, name, endpoint, work.peer, call))
        args = (Port(ProcessRef(me.proc.process_id, "", "", ""), number), *args)
    return work.spec.function, args, kwargs


def packed(work: Work, value: object) -> Sequence[Buffer]:
    """Return the parts of what was returned; none where a port answers, or nobody waits."""
    with_port = work.spec is not None and work.spec.explicit_port
    return pack(value) if work.message.call and not with_port else ()


def guarded(job: Callable[[], object], end: Callable[[int], None]) -> Callable[[], None]:
    """Return ``job`` as run on a thread of ours: ``sys.exit`` there calls ``end``."""

    def run() -> None:
        with exits(end):
            job()

    return run


def fault_of(error: Exception, at_s: float) -> Fault:
    """Return what an exception in users' code means, with its traceback from their frame on."""
    frames = error.__traceback__
    if frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return Fault(
        kind="exception",
        reason=f"{type(error).__name__}: {error}",
        exception=error,
        traceback=text,
        time_s=at_s,
    )
