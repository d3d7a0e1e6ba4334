"""The link to one other process, over a session that outlives connections (A-3).

On the connections' loop, but for ``submit`` and the simplest answers: whoever calls an actor sends
from its own thread, and reads there while it waits.

Invariants:
    What is submitted is sent in the order in which it was, whichever thread sends it.
    Nothing small that waits to go with others waits for longer than the interpreter takes to
    switch threads.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from danaus.actor.arrivals import Arrivals
from danaus.actor.batches import SMALL_BYTES, TOGETHER, Key, Outgoing
from danaus.actor.contexts import incarnation_of
from danaus.actor.failure import Fault
from danaus.actor.handover import Handover, handover_to
from danaus.actor.identity import ProcessRef
from danaus.actor.links import NOT_SENT, Link, LinkUser, Parts, Pending
from danaus.actor.process_messages import (
    CODEC,
    Deliver,
    ProcessMessage,
    Raised,
    Returned,
    ReturnedMany,
)
from danaus.core.errors import ChannelClosed, MessageTooLarge
from danaus.core.interrupts import HeldInterrupts
from danaus.wire.codec import own
from danaus.wire.lending import Part
from danaus.wire.reading import SharedReading
from danaus.wire.session import Session

Unsent = tuple[ProcessMessage, Parts, Pending | None]

Turn = tuple[Handover | None, int]

_ANSWERS = (Returned, Raised)

RENEW_AFTER_S = 5.0
"""A link whose session ended is given up for so long; then its next use opens another."""


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
        self.ref = ref
        self.life = life
        self._failed_at = 0.0
        self._numbers_anew: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self.session: Session | None = None
        self._opened = opened
        self._is_opening = False
        self._outbox: list[tuple[ProcessMessage, Parts]] = []
        self._lent: dict[int, int] = {}  # call -> number of a message with borrowed buffers
        self._outgoing = Outgoing()
        self._last: Turn = (None, 0)  # that a call came from
        self._corked = False  # until the end of a turn of its loop
        self._io_will_flush = False

    @property
    def reading(self) -> SharedReading | None:
        return self.session.reading if self.session is not None else None

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
        self._arrivals = Arrivals(self._user.io, session)
        session.on_message = self._arrived
        self.session = session
        outbox, self._outbox = self._outbox, []
        for message, parts in outbox:
            self._send_as_it_is(message, parts)

    def take_unsent(self) -> list[Unsent]:
        """Return what no session has taken, with who waits for it; it is this link's no more."""
        outbox, self._outbox = self._outbox, []
        return [
            (message, own(parts), self._pending.pop(getattr(message, "call", 0), None))
            for message, parts in outbox
        ]

    def send_again(self, unsent: list[Unsent]) -> None:
        """Send what another link has not."""
        for message, parts, pending in unsent:
            if getattr(message, "call", 0) and pending is None:
                continue  # it was cancelled

            def build(call: int, message: ProcessMessage = message) -> ProcessMessage:
                return msgspec.structs.replace(message, call=call) if call else message

            self.post(build, parts, pending)

    # -- from any thread -----------------------------------------------------------------------

    def submit(
        self, key: Key, parts: Parts, pending: Pending | None, *, numbers: Iterator[int]
    ) -> int:
        session = self.session
        if session is None:
            return NOT_SENT
        is_large = len(parts) > 1 or len(parts[0]) > SMALL_BYTES
        sent: Sequence[Part] = parts
        if is_large:  # copied before anybody is kept waiting
            sent = session.lend(parts)
            sent = sent if pending is not None else own(sent)
        with self._sending:
            if self.fault_why or self.life:
                session.give_up(sent)
                return NOT_SENT
            call = next(self._numbers) if pending is not None else 0
            if pending is not None:
                self._pending[call] = pending
            try:
                if is_large:
                    with HeldInterrupts():
                        self._flush(session)
                        self._submit_large(session, key, sent, numbers=(call, next(numbers)))
                else:
                    num = self._outgoing.add(key, bytes(parts[0]), call=call, numbers=numbers)
                    if num >= TOGETHER or self._goes_now(pending is not None):
                        self._flush(session)
            except ChannelClosed as error:
                self._user.io.post(self.fail, f"the connection ended: {error.why}", None)
            return call

    def _submit_large(
        self, session: Session, key: Key, parts: Sequence[Part], *, numbers: tuple[int, int]
    ) -> None:
        (mesh_id, rank, incarnation, sender, endpoint, place), (call, number) = key, numbers
        message = Deliver(call, mesh_id, rank, incarnation, sender, number, endpoint, place)
        sent = session.send([CODEC.encode(message), *parts])
        if call and len(parts) > 1:
            self._note_lent(call, sent)

    def _note_lent(self, call: int, number: int) -> None:
        self._lent[call] = number
        if call not in self._pending:  # the answer was faster
            self._lent.pop(call, None)

    def _goes_now(self, waits: bool) -> bool:
        """Tell whether what is outgoing goes at once; if not, that is seen to.

        Alone it goes at once if somebody waits for it; what is sent from a loop before that hears
        of any answer, or without waiting, goes together.
        """
        loop = asyncio._get_running_loop()
        if waits:
            last, self._last = self._last, _turn_of(loop)
            if loop is None or last != self._last:
                return True
            if not self._corked:
                self._corked = True
                loop.call_soon(self._end_of_turn)
        if not self._io_will_flush:
            with HeldInterrupts():
                # However long this thread goes on: its turn of the interpreter ends.
                self._io_will_flush = True
                self._user.io.post(self._flush_by_io)
        return False

    def _end_of_turn(self) -> None:
        self._corked = False
        self._flush_all()

    def _flush_by_io(self) -> None:
        self._corked = self._io_will_flush = False
        self._flush_all()

    def _flush_all(self) -> None:
        if len(self._outgoing) and self.session is not None:
            try:
                with self._sending:
                    self._flush(self.session)
            except ChannelClosed as error:
                self._user.io.post(self.fail, f"the connection ended: {error.why}", None)

    def _flush(self, session: Session) -> None:
        """Send what is outgoing; with ``_sending`` held."""
        if len(self._outgoing):
            with HeldInterrupts():
                session.send([CODEC.encode(self._outgoing.take())])

    # -- on the connections' loop --------------------------------------------------------------

    def fail(self, why: str, fault: Fault | None) -> None:
        """End this link and its session."""
        if self.fault_why:
            return
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
        sender, number = f"{message.sender} over link {self.life}", self._numbers_anew[key]
        incarnation = incarnation_of(self.ref.process_id)  # an heir's is another than was meant
        return msgspec.structs.replace(
            message, sender=sender, number=number, incarnation=incarnation
        )

    def _send_as_it_is(self, message: ProcessMessage, parts: Parts) -> None:
        if self.session is None:
            self._outbox.append((message, parts))
            return
        call = getattr(message, "call", 0)
        try:
            with self._sending:
                self._flush(self.session)
                number = self.session.send([CODEC.encode(message), *parts])
            if call and len(parts) > 1:
                self._note_lent(call, number)
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
        # On whichever thread reads the session, which ends where the message is none.
        message = CODEC.decode(parts[0], self.ref.process_id)
        if self._arrivals.may_be_handled:
            if isinstance(message, ReturnedMany):
                message = ReturnedMany(self._told_here(message.values))
                if not message.values:
                    return
            elif isinstance(message, _ANSWERS):
                waiting = self._pending.get(message.call)
                if waiting is not None and waiting.any_thread:
                    self._take_answer(message, parts[1:])
                    return
        self._arrivals.handle(self._take_answer, message, parts[1:])

    def _told_here(self, values: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Tell who waits what came, on whichever thread; return what only the loop may tell."""
        pending = self._pending
        for at, (call, value) in enumerate(values):
            waiting = pending.get(call)
            if waiting is None:
                continue
            if not waiting.any_thread:
                return values[at:]
            if self._lent:
                self._lent.pop(call, None)
            if pending.pop(call, None) is not None:  # nobody was faster
                waiting.returned((value,))
        return []

    def _take_answer(self, message: ProcessMessage, parts: Parts) -> None:
        if self._lent:
            self._lent.pop(getattr(message, "call", 0), None)
        self._answered(message, parts)


def _turn_of(loop: asyncio.AbstractEventLoop | None) -> Turn:
    """Return which answers the loop has heard so far."""
    if loop is None:
        return None, 0
    handover = handover_to(loop)
    return handover, handover.turn
