"""Links to processes, with the calls that wait there.

Owns what all links share, and ``LocalLink`` (to this process itself); to other processes see
``process_link``.  All on the connections' loop, except where it is said.

Invariants:
    A-4: whatever waits at a link is told exactly once: the answer, or that the other side is gone.
    A-1: what a link that failed has lost is waited for by nobody: the one that takes its place
        numbers anew, under another sender's name.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from danaus.actor.batches import Key
from danaus.actor.cast_messages import Gathered
from danaus.actor.failure import Fault
from danaus.actor.identity import ProcessRef
from danaus.actor.loop_thread import LoopThread
from danaus.actor.process_messages import (
    ActorFailed,
    CancelCall,
    Deliver,
    FailurePassedUp,
    Gone,
    ProcessMessage,
    Raised,
    Returned,
    ReturnedMany,
)
from danaus.wire.codec import own
from danaus.wire.frame import Buffer
from danaus.wire.reading import SharedReading

NOT_SENT = -1
"""Of ``submit``: the link took nothing."""

Parts = Sequence[Buffer]


class Live(bytes):
    """An object handed to an actor of this very process as it is, instead of a copy.

    Travels where the first part of a packed object would.
    """

    value: object

    @classmethod
    def of(cls, value: object) -> Live:
        """Return the part that stands for ``value``."""
        part = cls()
        part.value = value
        return part


Deliveries = list[tuple[Deliver, Parts]]
"""Messages for actors that came together."""

Build = Callable[[int], ProcessMessage]


class Pending(Protocol):
    """Someone who waits for the answer to one message.

    Attributes:
        any_thread: Whether ``returned`` and ``raised`` may be called from any thread, not from the
            loop alone.
    """

    any_thread: bool

    def returned(self, parts: Parts) -> None:
        """The endpoint returned; ``parts`` hold the value."""

    def raised(self, message: Raised, parts: Parts) -> None:
        """The endpoint raised; ``parts`` hold the exception, if it could be pickled."""

    def gone(self, why: str, fault: Fault | None) -> None:
        """There will be no answer: the actor, its process or its host is gone."""


class LinkUser(Protocol):
    """The process, as a link sees it."""

    @property
    def io(self) -> LoopThread:
        """The connections' loop."""

    def take_request(self, message: ProcessMessage, parts: Parts, peer: Peer) -> None:
        """Handle what arrived and is no answer."""

    def take_messages(self, messages: Deliveries, peer: Peer) -> Deliveries:
        """Hand messages to actors, from any thread; return those that only the loop can hand on."""

    def take_notice(self, message: ActorFailed | FailurePassedUp, parts: Parts) -> None:
        """Handle what an actor of a mesh owned here has to say about its failures."""


class Peer(Protocol):
    """Where a request came from, and its answer goes."""

    @property
    def worker(self) -> ProcessRef | None:
        """Who it is, if it is a worker: one that a host agent watches."""

    @property
    def is_away(self) -> bool:
        """Tell whether nothing reaches it now."""

    def send(self, message: ProcessMessage, parts: Parts = ()) -> None:
        """Send, from any thread; a peer that is gone swallows it."""

    def answer(self, call: int, parts: Parts, *, more: bool) -> None:
        """Send what a call returned, from any thread.

        Args:
            call: Its number.
            parts: The value; they may be written to again once this returns.
            more: Others are likely to follow at once: it may wait a moment to go with them.
        """


class Link:
    """What both kinds of link share: numbering calls and handing out answers."""

    def __init__(self, user: LinkUser) -> None:
        self._user = user
        self._sending = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._numbers = itertools.count(1)
        self.fault: Fault | None = None
        self.fault_why = ""
        self.life = 0
        """How many links to this process have failed before."""

    def post(self, build: Build, parts: Parts, pending: Pending | None) -> int:
        """Send the message that ``build`` makes for a call's number; 0: nobody waits.

        Returns:
            The number.
        """
        if self.fault_why:
            if pending is not None:
                pending.gone(self.fault_why, self.fault)
            return 0
        call = next(self._numbers) if pending is not None else 0
        if pending is not None:
            self._pending[call] = pending
        self._send(build(call), parts)
        return call

    def submit(
        self, key: Key, parts: Parts, pending: Pending | None, *, numbers: Iterator[int]
    ) -> int:
        """Send a message for an actor from the calling thread, if that can be done now.

        Ctrl-C may strike at any step: the message has gone then, with its number, or has none.

        Returns:
            The call's number, 0 where nobody waits; ``NOT_SENT``: let the connections' loop do it.
        """
        return NOT_SENT

    @property
    def reading(self) -> SharedReading | None:
        """Who brings the answers, where that may be the thread that waits for them."""
        return None

    def cancel(self, call: int) -> None:
        """Stop to wait for a call, and say so to the other side."""
        if self._pending.pop(call, None) is not None:
            self._give_back(call)
            self._send(CancelCall(call), ())

    def _give_back(self, call: int) -> None:
        """Let the caller have the memory of its arguments again: nobody waits any more."""

    def fail(self, why: str, fault: Fault | None) -> None:
        """End this link: whatever waits is told, whatever comes later too."""
        with self._sending:  # from here on ``submit`` refuses
            if self.fault_why:
                return
            self.fault, self.fault_why = fault, why
            pending, self._pending = self._pending, {}
        for each in list(pending.values()):  # while a thread that reads may take one out
            each.gone(why, fault)

    def _send(self, message: ProcessMessage, parts: Parts) -> None:
        raise NotImplementedError

    def _answered(self, message: ProcessMessage, parts: Parts) -> None:
        if isinstance(message, ReturnedMany):
            for call, value in message.values:
                waiting = self._pending.pop(call, None)
                if waiting is not None:
                    waiting.returned((value,))
            return
        if isinstance(message, Gathered):
            self._gathered(message, parts)
            return
        if isinstance(message, ActorFailed | FailurePassedUp):
            self._user.take_notice(message, parts)
            return
        pending = self._pending.pop(getattr(message, "call", 0), None)
        if pending is None:
            return
        match message:
            case Returned():
                pending.returned(parts)
            case Raised():
                pending.raised(message, parts)
            case Gone():
                pending.gone(message.why, None)
            case _:
                pending.gone(f"an answer of an unknown kind: {type(message).__name__}", None)

    def _gathered(self, message: Gathered, parts: Parts) -> None:
        pending = self._pending.get(message.call)
        if pending is None:
            return
        take = getattr(pending, "gathered", None)
        if message.is_last or take is None:
            del self._pending[message.call]
        if take is None:
            pending.gone("answers of many to what was asked of one", None)
        else:
            take(message, parts)


class LocalLink(Link):
    """To the actors of this very process.

    Arguments of calls are copied as on the way to others; what a constructor gets is not, so
    that an actor of the main program can be given what does not pickle.
    """

    worker: ProcessRef | None = None
    is_away = False

    def send(self, message: ProcessMessage, parts: Parts = ()) -> None:
        """Take the answer to a request (the link is its own peer)."""
        io = self._user.io
        if io.is_current:
            self._answered(message, parts)
        else:
            io.post(self._answered, message, parts)

    def answer(self, call: int, parts: Parts, *, more: bool) -> None:
        """Take what a call returned."""
        self.send(Returned(call), own(parts))

    def _send(self, message: ProcessMessage, parts: Parts) -> None:
        copies = [part if isinstance(part, Live) else bytearray(part) for part in parts]
        self._user.take_request(message, copies, self)
