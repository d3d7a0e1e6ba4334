"""Accepts authenticated sockets on a thread of its own, for code that has no event loop.

Owns listening, the handshakes, and proven sockets until somebody claims them by their hello.

Invariants:
    A socket is handed out only after its peer has proven itself, and nothing of what follows the
    handshake was read from it.
    A connection that does not finish its handshake in time is closed; it disturbs no other.
    What nobody claims in time is closed too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from danaus.core.clock import Clock, Deadline, MonotonicClock
from danaus.core.errors import ChannelClosed, DeadlinePassed, HandshakeRefused
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.handshake import Acceptor
from danaus.wire.secret import Secret

HANDSHAKE_LIMIT_S = 5.0
UNCLAIMED_LIMIT_S = 60.0
_MAX_UNCLAIMED = 1024
_MAX_UNPROVEN = 512
_TICK_S = 0.25  # how late a deadline may be noticed
_END_LIMIT_S = 5.0
_log = logging.getLogger("danaus.wire")

OnHello = Callable[[socket.socket, bytes], None]


@dataclass(slots=True, eq=False)
class _Unproven:
    """A connection in its handshake."""

    sock: socket.socket
    peer: str
    machine: Acceptor
    give_up_at: float
    out: bytes = b""


@dataclass(slots=True, eq=False)
class _Unclaimed:
    """A proven connection that nobody has asked for yet."""

    sock: socket.socket
    hello: bytes
    give_up_at: float


class PeerListener:
    """One daemon thread that accepts, proves and hands out sockets.

    Args:
        address: Where to bind; port 0 takes a free one.
        secret: The job's secret.
        handshake_limit_s: Seconds that a peer has to prove itself.
        unclaimed_limit_s: Seconds that a proven socket waits to be taken.
        allow_plain: Bind where other machines can dial, although nothing is encrypted yet.

    Attributes:
        address: Where it is bound, with the real port.

    Raises:
        AddressRefused: The address cannot be bound.
    """

    def __init__(
        self,
        address: Address,
        secret: Secret,
        *,
        handshake_limit_s: float = HANDSHAKE_LIMIT_S,
        unclaimed_limit_s: float = UNCLAIMED_LIMIT_S,
        allow_plain: bool = False,
    ) -> None:
        self._bound = sockets.BoundSocket(address, allow_plain=allow_plain)
        self.address = self._bound.address
        self._secret = secret
        self._handshake_limit_s = handshake_limit_s
        self._unclaimed_limit_s = unclaimed_limit_s
        self._clock: Clock = MonotonicClock()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._unproven: dict[socket.socket, _Unproven] = {}
        self._condition = threading.Condition()  # guards what follows
        self._unclaimed: list[_Unclaimed] = []
        self._on_hello: dict[bytes, OnHello] = {}
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bound.sock, selectors.EVENT_READ)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._thread = threading.Thread(
            target=self._run, name=f"danaus peers at {self.address}", daemon=True
        )
        self._thread.start()

    # -- for users, from any thread --------------------------------------------------------

    def take(self, key: bytes, deadline: Deadline) -> socket.socket:
        """Wait for a peer whose hello equals ``key``; return its blocking socket.

        Raises:
            DeadlinePassed: None came in time.
            ChannelClosed: The listener was closed.
        """
        with self._condition:
            while True:
                for index, waiting in enumerate(self._unclaimed):
                    if waiting.hello == key:
                        del self._unclaimed[index]
                        return waiting.sock
                if self._closed:
                    raise ChannelClosed(str(self.address), "this side closed the listener")
                if not self._condition.wait(deadline.remaining_s()):
                    name = key.decode(errors="backslashreplace")
                    raise DeadlinePassed(f"a peer that says {name!r}", deadline.limit_s)

    def on_hello(self, prefix: bytes, callback: OnHello | None) -> None:
        """Hand every peer whose hello begins with ``prefix`` to ``callback``; None stops that.

        The longest fitting prefix counts.  The callback runs on the listener's thread (here, for
        those that wait already), owns the socket, must not block and must not raise.
        """
        with self._condition:
            if callback is None:
                self._on_hello.pop(prefix, None)
                return
            self._on_hello[prefix] = callback
            fitting = [each for each in self._unclaimed if each.hello.startswith(prefix)]
            self._unclaimed = [each for each in self._unclaimed if each not in fitting]
        for each in fitting:
            callback(each.sock, each.hello)

    def drop(self, prefix: bytes) -> int:
        """Close every unclaimed socket whose hello begins with ``prefix``; return how many."""
        with self._condition:
            dropped = [each for each in self._unclaimed if each.hello.startswith(prefix)]
            self._unclaimed = [each for each in self._unclaimed if each not in dropped]
        for each in dropped:
            each.sock.close()
        return len(dropped)

    def close(self) -> None:
        """Stop accepting, end the thread, close every socket that was not handed out."""
        with self._condition:
            closed_before, self._closed = self._closed, True
            self._condition.notify_all()
            if not closed_before:
                os.eventfd_write(self._wake_fd, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_LIMIT_S)

    # -- on the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._clean_up)
            while not self._closed:
                for key, _ in self._selector.select(_TICK_S if self._has_deadlines() else None):
                    if key.fileobj is self._bound.sock:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket):
                        self._proceed(self._unproven.get(key.fileobj))
                self._expire()

    def _has_deadlines(self) -> bool:
        with self._condition:
            return bool(self._unproven or self._unclaimed)

    def _accept(self) -> None:
        try:
            sock = self._bound.accept()
        except OSError as error:
            # No descriptors left, most likely: the connection waits in the backlog.
            _log.warning("cannot accept at %s: %s", self.address, error)
            with self._condition:
                self._condition.wait(_TICK_S)
            return
        if sock is None:
            return
        if len(self._unproven) >= _MAX_UNPROVEN:
            self._drop(next(iter(self._unproven.values())), "too many unfinished handshakes")
        peer = sockets.peer_name(sock)
        give_up_at = self._clock.now() + self._handshake_limit_s
        machine = Acceptor(self._secret, peer=peer)
        self._unproven[sock] = _Unproven(sock, peer, machine, give_up_at)
        self._selector.register(sock, selectors.EVENT_READ)

    def _proceed(self, peer: _Unproven | None) -> None:
        if peer is None:
            return  # dropped since the selector looked
        try:
            if not peer.out:
                # Never more than is certain to belong to the handshake.
                data = peer.sock.recv(peer.machine.need_bytes)
                if not data:
                    self._drop(peer, "it left during the handshake", logging.DEBUG)
                    return
                peer.out = peer.machine.feed(data)
            if peer.out:
                peer.out = peer.out[peer.sock.send(peer.out) :]
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, HandshakeRefused) as error:
            self._drop(peer, str(error))
            return
        if peer.machine.done and not peer.out:
            self._forget(peer)
            self._hand_out(peer.sock, peer.machine.peer_hello)
        else:
            waits_for = selectors.EVENT_WRITE if peer.out else selectors.EVENT_READ
            self._selector.modify(peer.sock, waits_for)

    def _hand_out(self, sock: socket.socket, hello: bytes) -> None:
        sock.setblocking(True)
        with self._condition:
            fitting = [prefix for prefix in self._on_hello if hello.startswith(prefix)]
            callback = self._on_hello[max(fitting, key=len)] if fitting else None
            if callback is None:
                give_up_at = self._clock.now() + self._unclaimed_limit_s
                self._unclaimed.append(_Unclaimed(sock, hello, give_up_at))
                self._condition.notify_all()
        if callback is not None:
            callback(sock, hello)

    def _expire(self) -> None:
        now = self._clock.now()
        for peer in [each for each in self._unproven.values() if each.give_up_at <= now]:
            self._drop(peer, f"no proof within {self._handshake_limit_s:.1f} s")
        with self._condition:
            kept = [each for each in self._unclaimed if each.give_up_at > now][-_MAX_UNCLAIMED:]
            late = [each for each in self._unclaimed if each not in kept]
            self._unclaimed = kept
        for each in late:
            each.sock.close()

    def _drop(self, peer: _Unproven, why: str, level: int = logging.WARNING) -> None:
        _log.log(level, "%s: refused %s: %s", self.address, peer.peer, why)
        self._forget(peer)
        peer.sock.close()

    def _forget(self, peer: _Unproven) -> None:
        self._selector.unregister(peer.sock)
        del self._unproven[peer.sock]

    def _clean_up(self) -> None:
        with self._condition:
            self._closed = True
            unclaimed, self._unclaimed = self._unclaimed, []
            self._condition.notify_all()
        self._selector.close()
        self._bound.close()
        for sock in [*self._unproven, *(each.sock for each in unclaimed)]:
            sock.close()
        self._unproven.clear()
        with self._condition:
            os.close(self._wake_fd)
