"""One peer's connection for bulk bytes: checked messages, no copies, never blocking.

Owns the header of the data plane (groups and state transfer) and the half-sent and half-received
message of one stream.
Which message is due, and where its bytes belong, is the exchange's business.

Invariants:
    W-3: headers and payloads are checksummed; a bad one ends the lane.
    No byte of a message is read before the exchange it belongs to asks for it, so that a peer
    that is ahead waits in its own socket buffer.  What TLS holds of it already is ``pending``: no
    poll tells of it, so whoever polls looks there first.
"""

from __future__ import annotations

import enum
import socket
import struct
from collections import deque
from typing import NamedTuple, Protocol

import xxhash

from danaus.core.errors import FrameDamaged, PeerLost
from danaus.wire.stream import Stream

LIMIT_BYTES = 1 << 30
_UNIX_BUFFER_BYTES = 1 << 20
_MAGIC = 0x31474E44  # "DNG1"
_FACTS = struct.Struct("<IHHIIIQ")  # magic, kind, slot, number, piece, length, payload checksum
_CHECK = struct.Struct("<I")
HEADER_BYTES = _FACTS.size + _CHECK.size


class Kind(enum.IntEnum):
    """What a message carries."""

    WELCOME = 1
    REFUSED = 2
    SMALL = 3
    PARTIAL = 4
    RESULT = 5
    MANIFEST = 6
    WANT = 7
    CHUNK = 8
    PART = 9


class Header(NamedTuple):
    """The facts of one message.

    ``number`` says what it belongs to: in a group, the how manieth exchange of this pair of
    members; in a transfer, the step.
    """

    kind: int
    slot: int
    number: int
    piece: int
    length: int
    checksum: int


def pack_header(header: Header) -> bytes:
    """Return the bytes of a header."""
    kind, slot, number, piece, length, checksum = header
    facts = _FACTS.pack(_MAGIC, kind, slot, number & 0xFFFFFFFF, piece, length, checksum)
    return facts + _CHECK.pack(xxhash.xxh32_intdigest(facts))


def unpack_header(data: bytes | bytearray | memoryview, peer: str) -> Header:
    """Return the header that ``data`` spells.

    Raises:
        FrameDamaged: It spells none.
    """
    (check,) = _CHECK.unpack_from(data, _FACTS.size)
    if check != xxhash.xxh32_intdigest(data[: _FACTS.size]):
        raise FrameDamaged(peer, "the checksum of a header is wrong")
    magic, *facts = _FACTS.unpack_from(data)
    header = Header(*facts)
    if magic != _MAGIC or header.length > LIMIT_BYTES:
        raise FrameDamaged(peer, f"no header of a group's message: {header}")
    return header


def pack_message(kind: Kind, payload: bytes, *, number: int = 0) -> bytes:
    """Return a whole message for a stream that has no lane yet (a welcome, a refusal)."""
    checksum = xxhash.xxh3_64_intdigest(payload)
    return pack_header(Header(kind, 0, number, 0, len(payload), checksum)) + payload


class Outgoing(NamedTuple):
    """A message to send; its bytes are lent until it is sent."""

    kind: Kind
    slot: int
    piece: int
    payload: memoryview


class Exchange(Protocol):
    """One collective as a lane sees it."""

    def due(self, lane: Lane) -> bool:
        """Tell whether more messages of this lane belong to the exchange."""
        ...

    def place(self, lane: Lane, header: Header) -> memoryview | None:
        """Return where the message's bytes go; None: not yet, ask again later."""
        ...

    def take(self, lane: Lane, header: Header) -> None:
        """Learn that the message's bytes have arrived undamaged."""
        ...


class Collective(Exchange, Protocol):
    """An exchange among members of a group."""

    def start(self) -> None:
        """Do what needs no peer; called once, before anything is received."""
        ...


class Lane:
    """The connection with one peer.

    Args:
        peer: The peer's name.
        stream: Where its bytes go, authenticated; the lane owns it from here on.
    """

    def __init__(self, peer: str, stream: Stream) -> None:
        self.peer = peer
        self._stream = stream
        self.number = 0
        self.num_bytes_sent = 0
        self.num_bytes_received = 0
        self.paused = False
        self._urgent: deque[Outgoing] = deque()
        self._queue: deque[Outgoing] = deque()
        self._sending: list[memoryview] = []
        self._head = memoryview(bytearray(HEADER_BYTES))
        self._num_head = 0
        self._header: Header | None = None
        self._body: memoryview | None = None
        self._num_body = 0
        if stream.sock.family == socket.AF_UNIX:
            # A piece fits in at once: an eighth of the wake-ups, where the kernel allows it.
            stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_BUFFER_BYTES)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._stream.fileno()

    @property
    def pending(self) -> bool:
        """Tell whether bytes may have arrived that no poll tells of."""
        return self._stream.pending

    def send(self, message: Outgoing, *, urgent: bool = False) -> None:
        """Queue a message; urgent ones overtake the others."""
        (self._urgent if urgent else self._queue).append(message)

    @property
    def wants_to_send(self) -> bool:
        """Tell whether bytes wait for the socket."""
        return bool(self._sending or self._urgent or self._queue)

    @property
    def num_waiting(self) -> int:
        """Messages that were queued and not yet begun."""
        return len(self._urgent) + len(self._queue)

    # -- sending ------------------------------------------------------------------------------

    def push(self) -> None:
        """Send what the socket takes now.

        Raises:
            PeerLost: The connection is gone.
        """
        while self._sending or self._begin():
            try:
                num_sent = self._stream.send(self._sending)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise self.lost(error) from error
            self.num_bytes_sent += num_sent
            while self._sending and num_sent >= len(self._sending[0]):
                num_sent -= len(self._sending.pop(0))
            if self._sending:
                self._sending[0] = self._sending[0][num_sent:]

    def _begin(self) -> bool:
        if not (self._urgent or self._queue):
            return False
        kind, slot, piece, payload = (self._urgent or self._queue).popleft()
        checksum = xxhash.xxh3_64_intdigest(payload)
        header = Header(kind, slot, self.number, piece, len(payload), checksum)
        self._sending.append(memoryview(pack_header(header)))
        if len(payload):
            self._sending.append(payload)
        return True

    # -- receiving ----------------------------------------------------------------------------

    def pull(self, exchange: Exchange) -> bool:
        """Receive what there is, one message at most; tell whether one was completed.

        Raises:
            PeerLost: The connection is gone or its bytes are damaged.
        """
        if self._header is None:
            if not self._fill_head():
                return False
            self._header = self._read_header()
        if self._body is None:
            self._body, self._num_body = exchange.place(self, self._header), 0
            self.paused = self._body is None
            if self._body is None:
                return False
        while self._num_body < self._header.length:
            num = self._receive(self._body[self._num_body :])
            if num == 0:
                return False
            self._num_body += num
        header, body = self._header, self._body
        if xxhash.xxh3_64_intdigest(body) != header.checksum:
            raise self.damaged("the checksum of a payload is wrong")
        self._header, self._body, self._num_head = None, None, 0
        exchange.take(self, header)
        return True

    def _fill_head(self) -> bool:
        while self._num_head < HEADER_BYTES:
            num = self._receive(self._head[self._num_head :])
            if num == 0:
                return False
            self._num_head += num
        return True

    def _read_header(self) -> Header:
        try:
            header = unpack_header(self._head, self.peer)
        except FrameDamaged as error:
            raise self.damaged(error.why) from error
        if header.number != self.number & 0xFFFFFFFF:
            raise self.damaged(f"it belongs to {header.number} where {self.number} is due")
        return header

    def _receive(self, into: memoryview) -> int:
        """Return how many bytes came, 0 if none are there now."""
        try:
            num = self._stream.recv_into(into)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self.lost(error) from error
        if num == 0:
            raise PeerLost(self.peer, "it closed the connection")
        self.num_bytes_received += num
        return num

    # -- the end ------------------------------------------------------------------------------

    def damaged(self, why: str) -> PeerLost:
        """Return the error for bytes that make no sense."""
        return PeerLost(self.peer, f"damaged message: {why}")

    def lost(self, error: OSError) -> PeerLost:
        """Return the error for a connection that broke."""
        return PeerLost(self.peer, error.strerror or str(error))

    def shut(self) -> None:
        """End the connection in both directions; the descriptor stays, as others may poll it."""
        self._stream.shut()

    def close(self) -> None:
        """Give the descriptor back."""
        self._stream.close()
