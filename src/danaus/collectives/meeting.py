"""Where a process is found by the peers of its groups, from epoch to epoch.

Owns the connections that peers opened and no group has taken yet: a peer may hear of an epoch
before this process does.  Connections of epochs that have ended are refused by name.

Invariants:
    Q-1: the epoch of a meeting point only grows; an older one is answered with the current.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from danaus.collectives.lane import Kind, pack_message
from danaus.core.errors import StaleQuorum
from danaus.wire.stream import Stream

PREFIX = b"danaus group 1\n"
_HELD_LIMIT = 4096


class HelloSource(Protocol):
    """Where proven connections come from (``wire.blocking.PeerListener``)."""

    def on_hello(self, prefix: bytes, callback: Callable[[Stream, bytes], None] | None) -> None:
        """Hand over, from another thread, each connection whose hello starts with ``prefix``."""
        ...


class GroupHello(msgspec.Struct, frozen=True, array_like=True):
    """The first words of the member that dials."""

    epoch: str
    dialler: str
    acceptor: str


def pack_hello(hello: GroupHello) -> bytes:
    """Return the words to dial with."""
    return PREFIX + msgspec.msgpack.encode(hello)


def epoch_order(epoch: str) -> tuple[int, ...]:
    """Return the place of an epoch such as ``"2.17"`` among all."""
    return tuple(int(part) for part in epoch.split("."))


class MeetingPoint:
    """One per process: hands the connections of peers to the group of their epoch.

    Args:
        listener: Where peers dial; stays the caller's.
    """

    def __init__(self, listener: HelloSource) -> None:
        self._lock = threading.Lock()
        self._current = ""
        self._me = ""
        self._held: dict[GroupHello, Stream] = {}
        self._on_arrival: Callable[[], None] | None = None
        self._left = False
        self._closed = False
        self._listener = listener
        listener.on_hello(PREFIX, self._arrived)

    def open(self, epoch: str, me: str, on_arrival: Callable[[], None]) -> None:
        """Begin an epoch; peers of older ones are refused from here on.

        Args:
            epoch: Its name.
            me: This process's name in it.
            on_arrival: Called, from another thread, when a peer may have come.

        Raises:
            StaleQuorum: It is older than the current one.
        """
        with self._lock:
            if self._current and epoch_order(epoch) < epoch_order(self._current):
                raise StaleQuorum("this group", epoch, self._current)
            self._current, self._me, self._on_arrival = epoch, me, on_arrival
            self._left = False
            stale = [hello for hello in self._held if self._is_stale(hello)]
            dropped = [self._held.pop(hello) for hello in stale]
        for stream in dropped:
            _refuse(stream, epoch)

    def leave(self, epoch: str) -> None:
        """End an epoch: peers that still want to meet in it see their connection close."""
        dropped: list[Stream] = []
        with self._lock:
            if self._current == epoch:
                self._left, self._on_arrival = True, None
                late = [hello for hello in self._held if hello.epoch == epoch]
                dropped = [self._held.pop(hello) for hello in late]
        for stream in dropped:
            stream.close()

    def take(self, epoch: str) -> dict[str, Stream]:
        """Return the peers of ``epoch`` that have come since the last call, by name."""
        with self._lock:
            found = [hello for hello in self._held if hello.epoch == epoch]
            return {hello.dialler: self._held.pop(hello) for hello in found}

    def close(self) -> None:
        """Close what nobody took, now and later."""
        self._listener.on_hello(PREFIX, None)
        with self._lock:
            self._closed, self._on_arrival = True, None
            held, self._held = list(self._held.values()), {}
        for stream in held:
            stream.close()

    def _is_stale(self, hello: GroupHello) -> bool:
        if not self._current:
            return False
        order, current = epoch_order(hello.epoch), epoch_order(self._current)
        return order < current or (order == current and hello.acceptor != self._me)

    def _arrived(self, stream: Stream, hello_bytes: bytes) -> None:
        """Take a proven connection from the listener's thread."""
        try:
            hello = msgspec.msgpack.decode(hello_bytes[len(PREFIX) :], type=GroupHello)
            epoch_order(hello.epoch)
        except (msgspec.MsgspecError, ValueError):
            stream.close()
            return
        with self._lock:
            current = self._current
            stale = self._is_stale(hello)
            over = self._closed or (self._left and hello.epoch == current)
            dropped = stream if over else None if stale else self._hold(hello, stream)
            notify = self._on_arrival
        if dropped is not None:
            dropped.close()
        elif stale:
            _refuse(stream, current)
        if notify is not None:
            notify()

    def _hold(self, hello: GroupHello, stream: Stream) -> Stream | None:
        """Keep a connection; return one that must go for it."""
        dropped = self._held.pop(hello, None)
        if dropped is None and len(self._held) >= _HELD_LIMIT:
            dropped = self._held.pop(next(iter(self._held)))
        self._held[hello] = stream
        return dropped


def _refuse(stream: Stream, current: str) -> None:
    """Tell a peer of an ended epoch why it is turned away; never waits for it."""
    with stream:
        try:
            stream.send([pack_message(Kind.REFUSED, current.encode())])
        except OSError:
            pass  # it does not listen
