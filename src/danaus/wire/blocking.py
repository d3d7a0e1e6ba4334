"""Authenticated sockets for threads: the data plane and state transfer.

Owns dialling without an event loop, and frames over blocking sockets; accepting is
``peer_listener``'s work.  Who wants readiness instead of blocking takes the socket and ``frame``'s
``FrameParser`` and ``encode_head``.

Invariant: nothing of what follows the handshake is read before the socket is handed out.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence

from danaus.core.clock import Deadline
from danaus.core.errors import (
    AddressRefused,
    ChannelClosed,
    DanausError,
    DeadlinePassed,
)
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.frame import (
    DEFAULT_MAX_FRAME_BYTES,
    FIXED_BYTES,
    Buffer,
    Head,
    Kind,
    check_payload,
    decode_head,
    encode_head,
    flat,
    rest_of_head_bytes,
)
from danaus.wire.handshake import Dialler
from danaus.wire.peer_listener import PeerListener
from danaus.wire.secret import Secret

__all__ = ["PeerListener", "dial_peer", "recv_frame", "send_frame"]

_BACKLOG_FULL_PAUSE_S = 0.005
_IOVECS = 64

Place = Callable[[Head], Sequence[bytearray | memoryview]]


# -- dialling --------------------------------------------------------------------------------


def dial_peer(
    address: Address, secret: Secret, hello: bytes = b"", *, deadline: Deadline
) -> socket.socket:
    """Return a blocking socket to ``address`` after both ends have proven themselves.

    Args:
        address: Where a ``PeerListener`` or ``channel.listen`` accepts.
        secret: The job's secret.
        hello: What to say of oneself; travels in the clear.
        deadline: For resolving, connecting and the handshake together.

    Raises:
        AddressRefused: Nobody listens there.
        HandshakeRefused: Whoever listens does not hold the secret.
        ChannelClosed: It left in the middle.
        DeadlinePassed: It did not answer in time.
    """
    machine = Dialler(secret, hello, peer=str(address))
    sock = _connected(address, deadline)
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        out = machine.start()
        while True:
            _send_all(sock, [out], deadline, peer=str(address))
            if machine.done:
                break
            answer = bytearray(machine.need_bytes)
            _recv_into(sock, memoryview(answer), deadline, peer=str(address))
            out = machine.feed(answer)
        sock.settimeout(None)
        stack.pop_all()
    return sock


def _connected(address: Address, deadline: Deadline) -> socket.socket:
    why = "no time was left"
    for endpoint in sockets.resolve(address):
        while not deadline.passed:
            sock = sockets.make(endpoint)
            try:
                sock.settimeout(max(deadline.remaining_s(), 1e-3))
                sock.connect(endpoint.sockaddr)
                sockets.tune(sock)
                return sock
            except BlockingIOError:
                sock.close()
                time.sleep(_BACKLOG_FULL_PAUSE_S)  # the listener's backlog is full
            except TimeoutError:
                sock.close()
                break
            except OSError as error:
                sock.close()
                why = error.strerror or str(error)
                break
    deadline.check(f"a connection to {address}")
    raise AddressRefused(str(address), why)


# -- frames over blocking sockets ------------------------------------------------------------


def send_frame(
    sock: socket.socket,
    parts: Sequence[Buffer],
    *,
    deadline: Deadline | None = None,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> None:
    """Send one message; no buffer is copied.

    After an error the connection is of no more use: part of the frame may have been sent.

    Raises:
        ChannelClosed: The connection is gone.
        DeadlinePassed: The peer did not take it in time.
        MessageTooLarge: Nothing was sent.
    """
    bodies = [flat(part) for part in parts]
    head = encode_head(Kind.MESSAGE, bodies, max_frame_bytes=max_frame_bytes)
    _send_all(sock, [head, *bodies], deadline)


def recv_frame(
    sock: socket.socket,
    *,
    deadline: Deadline | None = None,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    place: Place | None = None,
) -> list[bytearray | memoryview]:
    """Return the next message's parts.

    After an error the connection is of no more use: part of the frame may have been read.

    Args:
        sock: A blocking socket.
        deadline: None waits for as long as the connection lives.
        max_frame_bytes: Largest sum of part lengths to take.
        place: Given the checked head, returns writable flat memory of exactly its part lengths
            to receive into; without it new memory is made.

    Raises:
        ChannelClosed: The connection is gone.
        DeadlinePassed: The message did not come in time.
        FrameDamaged: What came is no frame of ours.
    """
    fixed = bytearray(FIXED_BYTES)
    _recv_into(sock, memoryview(fixed), deadline)
    name = sockets.peer_name(sock)
    rest = bytearray(rest_of_head_bytes(fixed, name))
    _recv_into(sock, memoryview(rest), deadline)
    head = decode_head(bytes(fixed + rest), name, max_frame_bytes)
    parts: list[bytearray | memoryview] = (
        [bytearray(length) for length in head.lengths] if place is None else list(place(head))
    )
    if [len(part) for part in parts] != list(head.lengths):
        raise ValueError(f"memory of {[len(p) for p in parts]} bytes for {head.lengths}")
    for part in parts:
        _recv_into(sock, memoryview(part), deadline)
    check_payload(head, parts, name)
    return parts


def _send_all(
    sock: socket.socket, out: Sequence[Buffer], deadline: Deadline | None, *, peer: str = ""
) -> None:
    views = [memoryview(item) for item in out if len(item)]
    first = 0
    try:
        while first < len(views):
            _allow(sock, deadline)
            sent = sock.sendmsg(views[first : first + _IOVECS])
            while first < len(views) and sent >= len(views[first]):
                sent -= len(views[first])
                first += 1
            if sent:
                views[first] = views[first][sent:]
    except OSError as error:
        raise _translated(error, sock, deadline, peer=peer) from error


def _recv_into(
    sock: socket.socket, view: memoryview, deadline: Deadline | None, *, peer: str = ""
) -> None:
    view = view.cast("B") if view.format != "B" or view.ndim != 1 else view
    try:
        while view:
            _allow(sock, deadline)
            count = sock.recv_into(view)
            if not count:
                raise ChannelClosed(peer or sockets.peer_name(sock), "the peer closed it")
            view = view[count:]
    except OSError as error:
        raise _translated(error, sock, deadline, peer=peer) from error


def _allow(sock: socket.socket, deadline: Deadline | None) -> None:
    """Let the next system call block until the deadline at most."""
    if deadline is not None:
        sock.settimeout(max(deadline.remaining_s(), 1e-6))
    elif sock.gettimeout() is not None:
        sock.settimeout(None)


def _translated(
    error: OSError, sock: socket.socket, deadline: Deadline | None, *, peer: str
) -> DanausError:
    name = peer or sockets.peer_name(sock)
    if isinstance(error, TimeoutError) and error.errno is None and deadline is not None:
        return DeadlinePassed(f"bytes to or from {name}", deadline.limit_s)
    return ChannelClosed(name, error.strerror or str(error))
