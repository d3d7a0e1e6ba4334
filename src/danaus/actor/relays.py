"""Passing on what goes to many, and gathering the answers on the way back (A-11).

Owns ``Relays``, a process's part in the casts that come through it, and ``Relay``, its part in one.
Who passes on to whom is decided by ``tree`` before the first message leaves.  On the connections'
loop, but for the answers of actors.

Invariants:
    A-4: every point comes out exactly once.  Where whoever passes on is gone, its points without an
        answer are lost, and the first sender asks them itself: what they had before they do not run
        again, and what they have answered is answered again.
    An answer waits for others for ``GATHER_S`` at most.
"""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Sequence
from typing import Protocol

from danaus.actor.cast_messages import (
    Cast,
    CastTo,
    Gathered,
    How,
    PointAnswer,
)
from danaus.actor.failure import Fault
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Deliveries, Link, Parts, Peer
from danaus.actor.loop_thread import LoopThread
from danaus.actor.place import Place
from danaus.actor.portable import packed_exception
from danaus.actor.process_messages import (
    CancelCall,
    Deliver,
    Gone,
    ProcessMessage,
    Raised,
    Returned,
)
from danaus.core.errors import MessageTooLarge
from danaus.wire.codec import own
from danaus.wire.frame import DEFAULT_MAX_FRAME_BYTES

GATHER_S = 0.005
_REMEMBERED = 64  # casts whose answers may be asked for again
_KEPT_BYTES = 1 << 20  # of the answers of one cast
_MOST_PARTS = 1000
_MOST_BYTES = 64 << 20
"""What goes together; an answer of more than that goes alone."""
MAX_ANSWER_BYTES = DEFAULT_MAX_FRAME_BYTES - (1 << 20)
"""One that is larger fits into no frame with what is said beside it."""

Message = tuple[str, int, str, int]  # mesh, rank, sender, number


class RelayUser(Protocol):
    """The process, as its relays see it."""

    @property
    def io(self) -> LoopThread:
        """The connections' loop."""

    def link(self, ref: ProcessRef) -> Link:
        """Return the link to a process."""

    def deliver_many(self, messages: Deliveries, peer: Peer) -> None:
        """Hand messages to actors that live here."""

    def take(self, message: ProcessMessage, parts: Parts, peer: Peer) -> None:
        """Handle one request."""


class Relays:
    """The casts that come through this process.

    Args:
        user: The process.
    """

    def __init__(self, user: RelayUser) -> None:
        self._user = user
        self._open: dict[tuple[Peer, int], Relay] = {}
        self._recent: collections.OrderedDict[Message, tuple[Relay, int]] = (
            collections.OrderedDict()
        )
        self._relays: collections.deque[Relay] = collections.deque()

    def take(self, cast: Cast, parts: Parts, peer: Peer) -> None:
        """Pass a cast on, and hand it to those that live here."""
        relay = Relay(self._user, cast, peer, done=self._done)
        self._open[peer, cast.call] = relay
        for point in cast.to.points:
            message = (cast.mesh_id, point.rank, cast.sender, point.number)
            self._recent[message] = relay, point.at
        self._relays.append(relay)
        while len(self._relays) > _REMEMBERED:
            for message in self._relays.popleft().messages():
                self._recent.pop(message, None)
        relay.start(parts)

    def again(self, message: Deliver, parts: Parts, peer: Peer) -> None:
        """Answer, or deliver, what may have been delivered before."""
        key = (message.mesh_id, message.rank, message.sender, message.number)
        found = self._recent.get(key)
        if found is None or not found[0].waits:
            self._user.deliver_many([(message, parts)], peer)
        elif message.call:
            relay, at = found
            relay.answer_as_well(at, peer, message.call)

    def cancel(self, peer: Peer, call: int) -> None:
        """Nobody waits any more."""
        relay = self._open.pop((peer, call), None)
        if relay is not None:
            relay.cancel()

    def _done(self, relay: Relay) -> None:
        self._open.pop((relay.peer, relay.cast.call), None)


class Relay:
    """One cast at one process: the peer of its own actors, the caller of those that it passes to.

    Args:
        user: The process.
        cast: What came.
        peer: Where it came from.
        done: Called once all has come out.
    """

    worker: ProcessRef | None = None
    is_away = False

    def __init__(self, user: RelayUser, cast: Cast, peer: Peer, *, done: Done) -> None:
        self.cast, self.peer = cast, peer
        self.waits = cast.waits
        self._user = user
        self._done = done
        self._left = {point.at for branch in _all(cast.to) for point in branch.points}
        self._ranks = {point.at: point.rank for point in cast.to.points}
        self._is_leaf = len(self._left) == 1 and not cast.to.below
        self._answering = threading.Lock()
        self._kept: dict[int, tuple[ProcessMessage, Parts]] = {}  # of its own actors
        self._kept_bytes = 0
        self._also: dict[int, tuple[Peer, int]] = {}
        self._answers: list[PointAnswer] = []
        self._parts: list[bytes | bytearray | memoryview] = []
        self._num_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._below: list[tuple[Link, int]] = []
        self._is_over = False

    def messages(self) -> Sequence[Message]:
        """Return what it hands to its own actors."""
        cast = self.cast
        return [(cast.mesh_id, each.rank, cast.sender, each.number) for each in cast.to.points]

    def start(self, parts: Parts) -> None:
        """Pass it on, then hand it over here."""
        cast = self.cast
        for branch in cast.to.below:

            def build(call: int, branch: CastTo = branch) -> Cast:
                facts = (cast.mesh_id, cast.endpoint, cast.sender, cast.waits)
                return Cast(call, *facts, branch, cast.axes, cast.sizes)

            link = self._user.link(ref_of(branch))
            self._below.append((link, link.post(build, parts, _Below(self, branch))))
        here: Deliveries = []
        for each in cast.to.points:
            facts = (cast.mesh_id, each.rank, each.incarnation, cast.sender, each.number)
            call = each.at + 1 if cast.waits else 0
            place = Place(each.at, cast.axes, cast.sizes)
            here.append((Deliver(call, *facts, cast.endpoint, place), parts))
        if here:
            self._user.deliver_many(here, self)
        if not cast.waits:
            self._left.difference_update(self._ranks)
        self._flush_if_whole()

    # -- answers of actors that live here, from any thread -------------------------------------

    def send(self, message: ProcessMessage, parts: Parts = ()) -> None:
        """Take what an actor answers."""
        self._user.io.post(self._answered, message, own(parts))

    def answer(self, call: int, parts: Parts, *, more: bool) -> None:
        """Take what an actor returned; where there is nothing to gather, it goes on at once."""
        at, owned = call - 1, own(parts)
        if not self._is_leaf or sum(map(len, parts)) > MAX_ANSWER_BYTES:
            self._user.io.post(self._answered, Returned(call), owned)
            return
        with self._answering:
            if self._is_over or at in self._kept:
                return
            self._keep(at, Returned(0), owned)
            self._is_over = True
        self._left.clear()
        last = (PointAnswer(at, How.RETURNED, (), len(owned)),)
        self.peer.send(Gathered(self.cast.call, last, is_last=True), owned)
        self._done(self)

    def _answered(self, message: ProcessMessage, parts: Parts) -> None:
        at = getattr(message, "call", 0) - 1
        size = sum(map(len, parts))
        if size > MAX_ANSWER_BYTES:
            error = MessageTooLarge(size, MAX_ANSWER_BYTES, "bytes")
            name = f"{self.cast.mesh_id}/{self._ranks.get(at, at)}"
            message = Raised(at + 1, name, self.cast.endpoint, f"the answer: {error}", "")
            parts = packed_exception(error)
        with self._answering:
            if at not in self._ranks or at in self._kept:
                return
            self._keep(at, message, parts)
        match message:
            case Returned():
                self._take(at, How.RETURNED, parts=parts)
            case Raised(actor=actor, endpoint=endpoint, exception=said, traceback=text):
                self._take(at, How.RAISED, (actor, endpoint, said, text), parts=parts)
            case Gone(actor=actor, why=why):
                self._take(at, How.GONE, (actor, why), parts=parts)

    def _keep(self, at: int, message: ProcessMessage, parts: Parts) -> None:
        """Keep an answer for whoever asks again, or has; with ``_answering`` held."""
        self._kept_bytes += sum(map(len, parts))
        kept = self._kept_bytes <= _KEPT_BYTES
        lost = Gone(0, self.cast.mesh_id, "its answer was lost on the way and is not kept")
        self._kept[at] = (message, parts) if kept else (lost, ())
        if at in self._also:
            peer, call = self._also.pop(at)
            _send_as(message, parts, peer=peer, call=call)

    def answer_as_well(self, at: int, peer: Peer, call: int) -> None:
        """Answer somebody else too, who could not wait for this one."""
        with self._answering:
            if at in self._kept:
                _send_as(*self._kept[at], peer=peer, call=call)
            else:
                self._also[at] = peer, call

    # -- answers from below --------------------------------------------------------------------

    def gathered(self, branch: CastTo, message: Gathered, parts: Parts) -> None:
        """Take what came back from a branch."""
        start = 0
        for each in message.answers:
            end = start + each.num_parts
            self._take(each.at, each.how, each.words, parts=parts[start:end])
            start = end
        if message.is_last:
            missing = [point.at for each in _all(branch) for point in each.points]
            for at in missing:
                if at in self._left and self.waits:
                    self._take(at, How.LOST)
            self._left.difference_update(missing)
            self._flush_if_whole()

    def lost(self, branch: CastTo) -> None:
        """Whoever was to pass it on is gone."""
        for each in _all(branch):
            for point in each.points:
                self._take(point.at, How.LOST)

    def cancel(self) -> None:
        """Give up: below, and here."""
        self._end()
        for link, call in self._below:
            link.cancel(call)
        for at in self._ranks:
            self._user.take(CancelCall(at + 1), (), self)

    def _take(self, at: int, how: How, words: tuple[str, ...] = (), *, parts: Parts = ()) -> None:
        if at not in self._left:
            return
        size = sum(map(len, parts))
        if self._answers and self._is_too_much(len(parts), size):
            self._flush()
        self._left.discard(at)
        self._answers.append(PointAnswer(at, how, words, len(parts)))
        self._parts.extend(parts)
        self._num_bytes += size
        if self._left and self._timer is None and not self._is_over:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._flush)
        if self._is_too_much(0, 0):
            self._flush()
        self._flush_if_whole()

    def _is_too_much(self, num_parts: int, size: int) -> bool:
        """Tell whether what was gathered is, with so much more, too much to go together."""
        many = len(self._parts) + num_parts > _MOST_PARTS
        return many or self._num_bytes + size > _MOST_BYTES

    def _flush_if_whole(self) -> None:
        if not self._left and not self._is_over:
            self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_over:
            return
        answers, self._answers = tuple(self._answers), []
        parts, self._parts = self._parts, []
        self._num_bytes = 0
        self.peer.send(Gathered(self.cast.call, answers, not self._left), parts)
        if not self._left:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._done(self)


class Done(Protocol):
    """Told that all of a cast has come out."""

    def __call__(self, relay: Relay, /) -> None: ...


class _Below:
    """Waits for what comes back from one branch."""

    any_thread = False

    def __init__(self, relay: Relay, branch: CastTo) -> None:
        self._relay, self._branch = relay, branch

    def gathered(self, message: Gathered, parts: Parts) -> None:
        self._relay.gathered(self._branch, message, parts)

    def returned(self, parts: Parts) -> None:
        self._relay.lost(self._branch)

    def raised(self, message: Raised, parts: Parts) -> None:
        self._relay.lost(self._branch)

    def gone(self, why: str, fault: Fault | None) -> None:
        self._relay.lost(self._branch)


def ref_of(branch: CastTo) -> ProcessRef:
    """Return the process of a branch."""
    return ProcessRef(branch.process_id, branch.agent_address, branch.address, branch.job)


def _all(branch: CastTo) -> list[CastTo]:
    return [branch, *(each for below in branch.below for each in _all(below))]


def _send_as(message: ProcessMessage, parts: Parts, *, peer: Peer, call: int) -> None:
    """Send an answer under another call's number."""
    match message:
        case Returned():
            peer.send(Returned(call), parts)
        case Raised(actor=actor, endpoint=endpoint, exception=said, traceback=text):
            peer.send(Raised(call, actor, endpoint, said, text), parts)
        case Gone(actor=actor, why=why):
            peer.send(Gone(call, actor, why), parts)
