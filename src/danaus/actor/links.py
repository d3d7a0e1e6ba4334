"""Connections to other processes: one link each, with the calls that wait there.

Owns ``ProcessLink`` (to a process, over a session that outlives connections, A-3), ``LocalLink``
(to this process itself) and ``SessionPeer`` (the way back).  All on the connections' loop.

Invariants:
    A-4: whatever waits at a link is told exactly once: the answer, or that the other side is gone.
    A-1: what a link that failed has lost is waited for by nobody: the one that takes its place
        numbers anew, under another sender's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from danaus.actor.agent_messages import Hello
from danaus.actor.failure import Fault
from danaus.actor.identity import ProcessRef
from danaus.actor.process_messages import (
    CODEC,
    ActorFailed,
    CancelCall,
    Deliver,
    FailurePassedUp,
    Gone,
    ProcessMessage,
    Raised,
    Returned,
)
from danaus.core.errors import ChannelClosed, DanausError, MessageTooLarge
from danaus.wire.codec import own
from danaus.wire.frame import Buffer
from danaus.wire.session import Session

RENEW_AFTER_S = 5.0
"""A link whose session ended is given up for so long; then its next use opens another."""

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


Build = Callable[[int], ProcessMessage]


class Pending(Protocol):
    """Someone who waits for the answer to one message."""

    def returned(self, parts: Parts) -> None:
        """The endpoint returned; ``parts`` hold the value."""

    def raised(self, message: Raised, parts: Parts) -> None:
        """The endpoint raised; ``parts`` hold the exception, if it could be pickled."""

    def gone(self, why: str, fault: Fault | None) -> None:
        """There will be no answer: the actor, its process or its host is gone."""


class LinkUser(Protocol):
    """The process, as a link sees it."""

    def take_request(self, message: ProcessMessage, parts: Parts, peer: Peer) -> None:
        """Handle what arrived and is no answer."""

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
        """Send; a peer that is gone swallows it."""


class SessionPeer:
    """The other end of a session that somebody opened with this process.

    Args:
        session: The session.
        hello: Who opened it.
        job: The job whose secret it has proven to hold.
    """

    def __init__(self, session: Session, hello: Hello, job: str) -> None:
        self.session = session
        self.worker: ProcessRef | None = None
        if hello.agent_address:
            self.worker = ProcessRef(hello.process_id, hello.agent_address, "", job)

    @property
    def is_away(self) -> bool:
        """Tell whether its session has no connection."""
        return not self.session.is_connected

    def send(self, message: ProcessMessage, parts: Parts = ()) -> None:
        """Send; a peer that is gone swallows it."""
        with contextlib.suppress(ChannelClosed):
            try:
                self.session.send([CODEC.encode(message), *parts])
            except MessageTooLarge as error:
                # Somebody waits for it: say so, or say it without what is too large.
                if isinstance(message, Returned):
                    message = Raised(message.call, "the answer", "", str(error), "")
                self.session.send([CODEC.encode(message)])


class Link:
    """What both kinds of link share: numbering calls and handing out answers."""

    def __init__(self, user: LinkUser) -> None:
        self._user = user
        self._pending: dict[int, Pending] = {}
        self._numbers = itertools.count(1)
        self.fault: Fault | None = None
        self.fault_why = ""

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

    def cancel(self, call: int) -> None:
        """Stop to wait for a call, and say so to the other side."""
        if self._pending.pop(call, None) is not None:
            self._give_back(call)
            self._send(CancelCall(call), ())

    def _give_back(self, call: int) -> None:
        """Let the caller have the memory of its arguments again: nobody waits any more."""

    def fail(self, why: str, fault: Fault | None) -> None:
        """End this link: whatever waits is told, whatever comes later too."""
        if self.fault_why:
            return
        self.fault, self.fault_why = fault, why
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.gone(why, fault)

    def _send(self, message: ProcessMessage, parts: Parts) -> None:
        raise NotImplementedError

    def _answered(self, message: ProcessMessage, parts: Parts) -> None:
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


class LocalLink(Link):
    """To the actors of this very process.

    Arguments of calls are copied as on the way to others; what a constructor gets is not, so
    that an actor of the main program can be given what does not pickle.
    """

    worker: ProcessRef | None = None
    is_away = False

    def send(self, message: ProcessMessage, parts: Parts = ()) -> None:
        """Take the answer to a request (the link is its own peer)."""
        self._answered(message, parts)

    def _send(self, message: ProcessMessage, parts: Parts) -> None:
        copies = [part if isinstance(part, Live) else bytearray(part) for part in parts]
        self._user.take_request(message, copies, self)


class ProcessLink(Link):
    """To one other process.

    Messages wait until its address is known and the session is open.

    Args:
        ref: The process.
        user: This process.
        opened: Opens a session with the address it is given, now or later, and hands it to
            ``attach``; or calls ``fail``.
        life: How many links to this process have failed before.
    """

    def __init__(
        self,
        ref: ProcessRef,
        user: LinkUser,
        opened: Callable[[ProcessLink, str], None],
        *,
        life: int = 0,
    ) -> None:
        super().__init__(user)
        self.ref, self.life = ref, life
        self._failed_at = 0.0
        self._numbers_anew: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self.session: Session | None = None
        self._opened = opened
        self._is_opening = False
        self._outbox: list[tuple[ProcessMessage, Parts]] = []
        self._lent: dict[int, int] = {}  # call -> number of a message with borrowed buffers

    @property
    def may_come_up_again(self) -> bool:
        """Tell whether the process may live and be within reach by now: a cut has ended, say."""
        failed_s = asyncio.get_running_loop().time() - self._failed_at
        return bool(self.fault_why) and self.fault is None and failed_s >= RENEW_AFTER_S

    def located(self, address: str) -> None:
        """Learn where the process listens."""
        if not self._is_opening and not self.fault_why:
            self._is_opening = True
            self._opened(self, address)

    def attach(self, session: Session) -> None:
        """Begin to use an open session."""
        self.session = session
        session.on_message = self._arrived
        outbox, self._outbox = self._outbox, []
        for message, parts in outbox:
            self._send_as_it_is(message, parts)

    def fail(self, why: str, fault: Fault | None) -> None:
        """End this link and its session."""
        if not self.fault_why:
            self._failed_at = asyncio.get_running_loop().time()
        super().fail(why, fault)
        self._outbox.clear()
        if self.session is not None:
            self.session.end(why, clean=True)

    def _send(self, message: ProcessMessage, parts: Parts) -> None:
        if self.life and isinstance(message, Deliver):
            message = self._numbered_anew(message)
        self._send_as_it_is(message, parts)

    def _numbered_anew(self, message: Deliver) -> Deliver:
        key = (message.sender, message.mesh_id, message.rank)
        self._numbers_anew[key] += 1
        sender = f"{message.sender} over link {self.life}"
        return msgspec.structs.replace(message, sender=sender, number=self._numbers_anew[key])

    def _send_as_it_is(self, message: ProcessMessage, parts: Parts) -> None:
        if self.session is None:
            self._outbox.append((message, parts))
            return
        call = getattr(message, "call", 0)
        try:
            number = self.session.send([CODEC.encode(message), *parts])
            if call and len(parts) > 1:
                self._lent[call] = number
        except ChannelClosed as error:
            self.fail(f"the connection ended: {error.why}", None)
        except MessageTooLarge as error:
            pending = self._pending.pop(call, None)
            if pending is not None:
                pending.gone(str(error), None)

    def _give_back(self, call: int) -> None:
        number = self._lent.pop(call, 0)
        if number and self.session is not None:
            self.session.keep_copies(number)
        self._outbox = [
            (message, own(parts) if getattr(message, "call", 0) == call else parts)
            for message, parts in self._outbox
        ]

    def _arrived(self, parts: list[bytearray]) -> None:
        try:
            message = CODEC.decode(parts[0], self.ref.process_id)
        except DanausError as error:
            self.fail(str(error), None)
            return
        self._lent.pop(getattr(message, "call", 0), None)
        self._answered(message, parts[1:])
