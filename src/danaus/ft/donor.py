"""One donor as a learner sees it: dialled, then listened to, then asked for chunks.

Owns the connection and what is owed over it; which chunk is asked of whom is ``transfer``'s.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Protocol

from danaus.collectives.dialling import PendingDial
from danaus.collectives.lane import Header, Kind, Lane, Outgoing
from danaus.core.errors import FrameDamaged, PeerLost, StaleQuorum
from danaus.ft.manifest import (
    MANIFEST_LIMIT_BYTES,
    Manifest,
    Wanted,
    pack_hello,
    unpack_manifest,
)
from danaus.wire.address import Address
from danaus.wire.secret import Secret

MOST_BYTES = 4 << 20
MOST_CHUNKS = 64
"""What is asked for at once at most, and again when no more than that is owed: a donor never waits
until a learner has taken all that it has sent."""
_REFUSAL_LIMIT_BYTES = 64
_NOTHING = memoryview(b"")


class Taker(Protocol):
    """What a donor's messages are for."""

    def described(self, donor: Donor, manifest: Manifest) -> None:
        """Learn what the donor serves."""
        ...

    def target(self, index: int) -> memoryview:
        """Return where a chunk's bytes belong."""
        ...

    def arrived(self, donor: Donor, index: int) -> None:
        """Learn that a chunk is there, undamaged."""
        ...


class Donor:
    """A connection that can be opened again.

    Args:
        name: The donor, for errors and reports.
        address: Where it listens.
        secret: The job's secret.
        wanted: What is asked for.
        taker: The transfer.
    """

    def __init__(
        self, name: str, address: Address, *, secret: Secret, wanted: Wanted, taker: Taker
    ) -> None:
        self.name, self._address, self._secret = name, address, secret
        self._wanted, self._taker = wanted, taker
        self._dial: PendingDial | None = None
        self._lane: Lane | None = None
        self._owed: dict[int, int] = {}  # chunk -> bytes
        self._owed_bytes = 0
        self.described = False
        self.was_connected = False
        self.num_failures = 0
        self.num_bytes = 0
        self.num_wire_bytes = 0
        self.heard_at = 0.0
        self._words = bytearray()

    def open(self) -> None:
        """Dial.

        Raises:
            PeerLost: Nobody listens there.
        """
        self.was_connected = False
        hello = pack_hello(self._wanted)
        self._dial = PendingDial(self.name, self._address, secret=self._secret, hello=hello)

    @property
    def polled(self) -> Lane | PendingDial | None:
        """What to poll; None: nothing can be polled now, call ``advance`` again soon."""
        if self._lane is not None:
            return self._lane
        return None if self._dial is None or self._dial.crowded else self._dial

    @property
    def has_more(self) -> bool:
        """Tell whether something has come that no poll tells of: call ``advance`` again."""
        return self._lane is not None and self._lane.pending

    @property
    def interest(self) -> int:
        """What to poll it for."""
        if self._lane is not None:
            return select.POLLIN | (select.POLLOUT if self._lane.wants_to_send else 0)
        return 0 if self._dial is None else self._dial.interest

    @property
    def is_open(self) -> bool:
        """Tell whether it may still serve."""
        return self._dial is not None or self._lane is not None

    @property
    def has_room(self) -> bool:
        """Tell whether it can be asked for more."""
        little = self._owed_bytes <= MOST_BYTES and len(self._owed) <= MOST_CHUNKS
        return self.described and little

    @property
    def owes(self) -> bool:
        """Tell whether chunks were asked for that have not come."""
        return bool(self._owed)

    def ask(self, first: int, sizes: Sequence[int], now: float) -> None:
        """Ask for chunks in a row.

        Args:
            first: Number of the first.
            sizes: Bytes of each.
            now: When that is.

        Raises:
            PeerLost: The connection is gone.
        """
        if not self._owed:
            self.heard_at = now
        self._owed |= {first + at: num_bytes for at, num_bytes in enumerate(sizes)}
        self._owed_bytes += sum(sizes)
        assert self._lane is not None  # has_room said so
        self._lane.send(Outgoing(Kind.WANT, len(sizes), first, _NOTHING))
        self._lane.push()

    def advance(self, clock: Callable[[], float]) -> None:
        """Go as far as the socket lets, or until more can be asked for.

        Args:
            clock: Where ``heard_at`` comes from.

        Raises:
            PeerLost: The connection is gone or its bytes are damaged.
            StaleQuorum: The donor has left the step behind.
        """
        if self._dial is not None and self._dial.advance():
            self._lane, self._dial = Lane(self.name, self._dial.stream), None
            self._lane.number = self._wanted.step & 0xFFFFFFFF
            self.was_connected = True
        if self._lane is not None:
            while self._lane.pull(self):
                self.heard_at = clock()
                if self.has_room:
                    break  # more is asked for before the rest of what came is taken
            self._lane.push()

    def close(self) -> list[int]:
        """End the connection; return the chunks that it still owes."""
        if self._dial is not None:
            self._dial.close()
        if self._lane is not None:
            self.num_wire_bytes += self._lane.num_bytes_received
            self._lane.close()
        self._dial, self._lane, self.described = None, None, False
        owed, self._owed, self._owed_bytes = sorted(self._owed), {}, 0
        return owed

    # -- what the lane asks -------------------------------------------------------------------

    def due(self, lane: Lane) -> bool:
        return True

    def place(self, lane: Lane, header: Header) -> memoryview | None:
        if header.kind == Kind.CHUNK and header.piece in self._owed:
            target = self._taker.target(header.piece)
            if header.length == len(target):
                return target
        limits: dict[int, int] = {
            Kind.MANIFEST: MANIFEST_LIMIT_BYTES,
            Kind.REFUSED: _REFUSAL_LIMIT_BYTES,
        }
        if self.described or header.length > limits.get(header.kind, -1):
            raise lane.damaged(f"kind {header.kind} of {header.length} bytes was not asked for")
        self._words = bytearray(header.length)
        return memoryview(self._words)

    def take(self, lane: Lane, header: Header) -> None:
        if header.kind == Kind.CHUNK:
            num_bytes = self._owed.pop(header.piece)
            self._owed_bytes -= num_bytes
            self.num_bytes += num_bytes
            self._taker.arrived(self, header.piece)
        elif header.kind == Kind.REFUSED:
            current = self._words.decode(errors="replace")
            raise StaleQuorum(str(self._wanted), f"step {self._wanted.step}", f"step {current}")
        else:
            try:
                manifest = unpack_manifest(self._words, self.name)
            except FrameDamaged as error:
                raise PeerLost(self.name, error.message()) from error
            self.described = True
            self._taker.described(self, manifest)
