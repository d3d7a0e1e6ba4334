"""Authenticated streams for threads that wait: the rendezvous store, programs without a loop.

Owns dialling without an event loop, and frames over a stream, each within a deadline; accepting
is ``peer_listener``'s work.  Who wants readiness instead of waiting takes the stream and
``frame``'s ``FrameParser`` and ``encode_head``.
"""

from __future__ import annotations

import contextlib
import math
import select
from collections.abc import Callable, Sequence

from danaus.core.clock import Deadline
from danaus.core.errors import ChannelClosed, DeadlinePassed
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
from danaus.wire.opening import CROWDED_RETRY_S, Dialling
from danaus.wire.peer_listener import PeerListener
from danaus.wire.secret import Secret
from danaus.wire.stream import Stream

__all__ = ["PeerListener", "dial_peer", "recv_frame", "send_frame"]

Place = Callable[[Head], Sequence[bytearray | memoryview]]


# -- dialling --------------------------------------------------------------------------------


def dial_peer(
    address: Address, secret: Secret, hello: bytes = b"", *, deadline: Deadline
) -> Stream:
    """Return a stream to ``address`` after both ends have proven themselves.

    Args:
        address: Where a ``PeerListener`` or ``channel.listen`` accepts.
        secret: The job's secret.
        hello: What to say of oneself; on this machine it travels in the clear.
        deadline: For resolving, connecting and the handshake together.

    Raises:
        AddressRefused: Nobody listens there.
        HandshakeRefused: Whoever listens does not hold the secret.
        ChannelClosed: It left in the middle.
        DeadlinePassed: It did not answer in time.
    """
    opening = Dialling(sockets.resolve(address), secret, hello, peer=str(address))
    with contextlib.ExitStack() as stack:
        stack.callback(opening.close)
        while not opening.advance():
            deadline.check(f"an answer from {address}")
            poller = select.poll()
            limit_s = deadline.remaining_s()
            if opening.crowded:
                limit_s = min(limit_s, CROWDED_RETRY_S)
            else:
                poller.register(opening, opening.interest)
            poller.poll(math.ceil(1000 * limit_s))
        stack.pop_all()
    return opening.stream


# -- frames ----------------------------------------------------------------------------------


def send_frame(
    stream: Stream,
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
    _send_all(stream, [head, *bodies], deadline)


def recv_frame(
    stream: Stream,
    *,
    deadline: Deadline | None = None,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    place: Place | None = None,
) -> list[bytearray | memoryview]:
    """Return the next message's parts.

    After an error the connection is of no more use: part of the frame may have been read.

    Args:
        stream: Where to receive.
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
    _recv_into(stream, memoryview(fixed), deadline)
    name = sockets.peer_name(stream.sock)
    rest = bytearray(rest_of_head_bytes(fixed, name))
    _recv_into(stream, memoryview(rest), deadline)
    head = decode_head(bytes(fixed + rest), name, max_frame_bytes)
    parts: list[bytearray | memoryview] = (
        [bytearray(length) for length in head.lengths] if place is None else list(place(head))
    )
    if [len(part) for part in parts] != list(head.lengths):
        raise ValueError(f"memory of {[len(p) for p in parts]} bytes for {head.lengths}")
    for part in parts:
        _recv_into(stream, memoryview(part), deadline)
    check_payload(head, parts, name)
    return parts


def _send_all(stream: Stream, out: Sequence[Buffer], deadline: Deadline | None) -> None:
    views = [memoryview(item) for item in out if len(item)]
    while views:
        try:
            sent = stream.send(views)
        except (BlockingIOError, InterruptedError):
            _wait(stream, select.POLLOUT, deadline)
            continue
        except OSError as error:
            raise _broken(stream, error) from error
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if sent:
            views[0] = views[0][sent:]


def _recv_into(stream: Stream, view: memoryview, deadline: Deadline | None) -> None:
    view = view.cast("B") if view.format != "B" or view.ndim != 1 else view
    while view:
        try:
            count = stream.recv_into(view)
        except (BlockingIOError, InterruptedError):
            _wait(stream, select.POLLIN, deadline)
            continue
        except OSError as error:
            raise _broken(stream, error) from error
        if not count:
            raise ChannelClosed(sockets.peer_name(stream.sock), "the peer closed it")
        view = view[count:]


def _wait(stream: Stream, interest: int, deadline: Deadline | None) -> None:
    """Wait until the stream can go on."""
    if stream.fileno() < 0:
        raise ChannelClosed("a peer that left", "this side closed it")
    poller = select.poll()
    poller.register(stream, interest)
    limit_ms = None if deadline is None else math.ceil(1000 * deadline.remaining_s())
    if not poller.poll(limit_ms) and deadline is not None:
        name = sockets.peer_name(stream.sock)
        raise DeadlinePassed(f"bytes to or from {name}", deadline.limit_s)


def _broken(stream: Stream, error: OSError) -> ChannelClosed:
    return ChannelClosed(sockets.peer_name(stream.sock), error.strerror or str(error))
