"""The other end of a session that somebody has opened with this process: where answers go."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from danaus.actor.agent_messages import Hello
from danaus.actor.arrivals import Arrivals
from danaus.actor.batches import ANSWERS_TOGETHER, SMALL_BYTES, Incoming
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Deliveries, LinkUser, Parts
from danaus.actor.portable import packed_exception
from danaus.actor.process_messages import (
    CODEC,
    Deliver,
    DeliverMany,
    ProcessMessage,
    Raised,
    Returned,
    ReturnedMany,
)
from danaus.core.errors import ChannelClosed, MessageTooLarge
from danaus.wire.codec import own
from danaus.wire.lending import Part
from danaus.wire.session import Session


class SessionPeer:
    """The other end of one session; answers may come from any thread.

    Args:
        session: The session.
        hello: Who opened it.
        job: The job whose secret it has proven to hold.
        user: This process.
    """

    def __init__(self, session: Session, hello: Hello, job: str, *, user: LinkUser) -> None:
        self.session = session
        self.worker: ProcessRef | None = None
        if hello.agent_address:
            self.worker = ProcessRef(hello.process_id, hello.agent_address, "", job)
        self._name = hello.process_id
        self._user = user
        self._incoming = Incoming(hello.process_id)
        self._arrivals = Arrivals(user.io, session)
        self._answering = threading.Lock()
        self._values: list[tuple[int, bytes]] = []
        self._io_will_flush = False
        session.on_message = self._arrived

    def _arrived(self, parts: list[bytearray]) -> None:
        # On whichever thread reads the session, which ends where the message is none.
        message = CODEC.decode(parts[0], self._name)
        many = self._opened(message, parts)
        if many is None:
            self._arrivals.handle(self._user.take_request, message, parts[1:], self)
            return
        if self._arrivals.may_be_handled:
            many = self._user.take_messages(many, self)
        if many:
            self._arrivals.handle(self._user.take_messages, many, self)

    def _opened(self, message: ProcessMessage, parts: list[bytearray]) -> Deliveries | None:
        if isinstance(message, Deliver):
            return [(message, parts[1:])]
        return self._incoming.open(message) if isinstance(message, DeliverMany) else None

    @property
    def is_away(self) -> bool:
        """Tell whether its session has no connection."""
        return not self.session.is_connected

    def send(self, message: ProcessMessage, parts: Parts = ()) -> None:
        """Send; a peer that is gone swallows it."""
        self._send(message, parts)

    def _send(self, message: ProcessMessage, parts: Sequence[Part]) -> None:
        with contextlib.suppress(ChannelClosed):
            try:
                self.session.send([CODEC.encode(message), *parts])
            except MessageTooLarge as error:
                # Somebody waits for it: say so, or say it without what is too large.
                instead: Parts = ()
                if isinstance(message, Returned):
                    message = Raised(message.call, "the answer", "", str(error), "")
                    instead = packed_exception(error)
                self.session.send([CODEC.encode(message), *instead])

    def answer(self, call: int, parts: Parts, *, more: bool) -> None:
        """Send what a call returned, alone or together with what follows at once."""
        if len(parts) > 1 or len(parts[0]) > SMALL_BYTES:
            self._send(Returned(call), own(self.session.lend(parts)))
            return
        with self._answering:
            self._values.append((call, bytes(parts[0])))
            if not more or len(self._values) >= ANSWERS_TOGETHER:
                self._flush()
                return
            posted, self._io_will_flush = self._io_will_flush, True
        if not posted:
            # Should the next one take long, this one does not wait for it.
            self._user.io.post(self._flush_by_io)

    def _flush_by_io(self) -> None:
        with self._answering:
            self._io_will_flush = False
            self._flush()

    def _flush(self) -> None:
        values, self._values = self._values, []
        if values:
            try:
                self.session.send([CODEC.encode(ReturnedMany(values))])
            except ChannelClosed:
                pass  # whoever waits hears of that
