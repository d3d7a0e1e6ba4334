"""What must be sent again, and what was seen before (A-3), as a pure machine.

One ``Window`` stands at each end of a session.  It numbers what goes out, keeps it until the
other end says that it arrived, and tells news from repetitions in what comes in.

Invariants:
    Numbers begin at 1 and have no gaps; a message is delivered when its number is the next one.
    What was sent and is not acknowledged is kept, in order.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

import msgspec

from danaus.core.errors import FrameDamaged
from danaus.wire.frame import Buffer, Kind

Fds = tuple[int, ...]
"""Descriptors that go with a message."""
ACK_EVERY_MESSAGES = 64
ACK_EVERY_BYTES = 1 << 20


class Sent(msgspec.Struct, eq=False):
    """A message that is kept until it is acknowledged."""

    number: int
    parts: Sequence[Buffer]
    size_bytes: int
    kind: Kind
    fds: Fds


class Window:
    """Sequence numbers and unacknowledged messages of one end of a session.

    Args:
        peer: Whom to name in errors.
    """

    def __init__(self, peer: str = "peer") -> None:
        self._peer = peer
        self._kept: collections.deque[Sent] = collections.deque()
        self.last_sent = 0
        self.last_acked = 0
        self.kept_bytes = 0
        self.received = 0
        self._unacked_messages = 0
        self._unacked_bytes = 0

    def send(
        self,
        parts: Sequence[Buffer],
        size_bytes: int,
        *,
        kind: Kind = Kind.MESSAGE,
        fds: Fds = (),
    ) -> int:
        """Take note of an outgoing message; return its number."""
        self.last_sent += 1
        self._kept.append(Sent(self.last_sent, parts, size_bytes, kind, fds))
        self.kept_bytes += size_bytes
        return self.last_sent

    def acked(self, ack: int) -> None:
        """Forget what the other end has received: everything up to ``ack``.

        Raises:
            FrameDamaged: It claims to have received what was never sent, or less than before
                when that was already forgotten.
        """
        if ack > self.last_sent:
            raise FrameDamaged(
                self._peer, f"it acknowledges message {ack}; {self.last_sent} was the last sent"
            )
        if ack <= self.last_acked:
            return
        self.last_acked = ack
        kept = self._kept
        while kept and kept[0].number <= ack:
            self.kept_bytes -= kept.popleft().size_bytes

    def resumed(self, ack: int) -> Iterator[Sent]:
        """Return what to send again to a peer that has received everything up to ``ack``.

        Raises:
            FrameDamaged: As ``acked``, or it has forgotten what it acknowledged once.
        """
        if ack < self.last_acked:
            raise FrameDamaged(
                self._peer, f"it received up to {ack} but had acknowledged {self.last_acked}"
            )
        self.acked(ack)
        return iter(tuple(self._kept))

    def kept(self, number: int) -> Sent | None:
        """Return the message of that number while it is not acknowledged."""
        index = number - self.last_acked - 1
        return self._kept[index] if 0 <= index < len(self._kept) else None

    def arrived(self, number: int, size_bytes: int) -> bool:
        """Tell whether an incoming message is to be delivered; false for a repetition.

        Raises:
            FrameDamaged: Messages before it are missing.
        """
        if number <= self.received:
            return False
        if number != self.received + 1:
            raise FrameDamaged(self._peer, f"message {number} came after {self.received}")
        self.received = number
        self._unacked_messages += 1
        self._unacked_bytes += size_bytes
        return True

    @property
    def oldest_owed(self) -> int:
        """Return which message has waited longest for its acknowledgement; 0: none waits."""
        owed = self._unacked_messages
        return self.received - owed + 1 if owed else 0

    @property
    def ack_is_due(self) -> bool:
        """Tell whether so much was received that an acknowledgement should go by itself."""
        return (
            self._unacked_messages >= ACK_EVERY_MESSAGES or self._unacked_bytes >= ACK_EVERY_BYTES
        )

    def take_ack(self) -> int:
        """Return the number to acknowledge in a frame that goes out now."""
        self._unacked_messages = self._unacked_bytes = 0
        return self.received
