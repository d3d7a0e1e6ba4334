"""Accepts authenticated streams on a thread of its own, for code that has no event loop.

Owns listening, the handshakes, and proven streams until somebody claims them by their hello.

Invariants:
    A stream is handed out only after its peer has proven itself, and nothing of what follows the
    handshake was taken from it.
    A connection that does not finish its handshake in time is closed; it disturbs no other.
    What nobody claims in time is closed too.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass

from danaus.core.clock import Clock, Deadline, MonotonicClock
from danaus.core.errors import ChannelClosed, DanausError, DeadlinePassed
from danaus.core.nudge import Nudge
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.opening import Accepting
from danaus.wire.secret import Secret
from danaus.wire.stream import Stream
from danaus.wire.tls import identity

HANDSHAKE_LIMIT_S = 5.0
UNCLAIMED_LIMIT_S = 60.0
_MAX_UNCLAIMED = 1024
_MAX_UNPROVEN = 512
_TICK_S = 0.25  # how late a deadline may be noticed
_END_LIMIT_S = 5.0
_log = logging.getLogger("danaus.wire")

OnHello = Callable[[Stream, bytes], None]


@dataclass(slots=True, eq=False)
class _Unproven:
    """A connection in its handshake."""

    opening: Accepting
    give_up_at: float
    interest: int = select.POLLIN


@dataclass(slots=True, eq=False)
class _Unclaimed:
    """A proven connection that nobody has asked for yet."""

    stream: Stream
    hello: bytes
    give_up_at: float


class PeerListener:
    """One daemon thread that accepts, proves and hands out streams.

    Args:
        address: Where to bind; port 0 takes a free one.
        secret: The job's secret.
        handshake_limit_s: Seconds that a peer has to prove itself.
        unclaimed_limit_s: Seconds that a proven stream waits to be taken.

    Attributes:
        address: Where it is bound, with the real port.

    Raises:
        AddressRefused: The address cannot be bound.
        ConfigError: Other machines may dial it, and the user's own TLS authority cannot be used.
    """

    def __init__(
        self,
        address: Address,
        secret: Secret,
        *,
        handshake_limit_s: float = HANDSHAKE_LIMIT_S,
        unclaimed_limit_s: float = UNCLAIMED_LIMIT_S,
    ) -> None:
        if not address.is_loopback:
            identity(secret)  # now, not when somebody dials
        self._bound = sockets.BoundSocket(address)
        self.address = self._bound.address
        self._secret = secret
        self._handshake_limit_s = handshake_limit_s
        self._unclaimed_limit_s = unclaimed_limit_s
        self._clock: Clock = MonotonicClock()
        self._nudge = Nudge()
        self._unproven: dict[int, _Unproven] = {}  # by descriptor
        self._condition = threading.Condition()  # guards what follows
        self._unclaimed: list[_Unclaimed] = []
        self._on_hello: dict[bytes, OnHello] = {}
        self._closed = False
        self._poller = select.poll()
        self._poller.register(self._bound.sock, select.POLLIN)
        self._poller.register(self._nudge, select.POLLIN)
        self._thread = threading.Thread(
            target=self._run, name=f"danaus peers at {self.address}", daemon=True
        )
        self._thread.start()

    # -- for users, from any thread --------------------------------------------------------

    def take(self, key: bytes, deadline: Deadline) -> Stream:
        """Wait for a peer whose hello equals ``key``; return its stream.

        Raises:
            DeadlinePassed: None came in time.
            ChannelClosed: The listener was closed.
        """
        with self._condition:
            while True:
                for index, waiting in enumerate(self._unclaimed):
                    if waiting.hello == key:
                        del self._unclaimed[index]
                        return waiting.stream
                if self._closed:
                    raise ChannelClosed(str(self.address), "this side closed the listener")
                if not self._condition.wait(deadline.remaining_s()):
                    name = key.decode(errors="backslashreplace")
                    raise DeadlinePassed(f"a peer that says {name!r}", deadline.limit_s)

    def on_hello(self, prefix: bytes, callback: OnHello | None) -> None:
        """Hand every peer whose hello begins with ``prefix`` to ``callback``; None stops that.

        The longest fitting prefix counts.  The callback runs on the listener's thread (here, for
        those that wait already), owns the stream, must not block and must not raise.
        """
        with self._condition:
            if callback is None:
                self._on_hello.pop(prefix, None)
                return
            self._on_hello[prefix] = callback
            fitting = [each for each in self._unclaimed if each.hello.startswith(prefix)]
            self._unclaimed = [each for each in self._unclaimed if each not in fitting]
        for each in fitting:
            callback(each.stream, each.hello)

    def drop(self, prefix: bytes) -> int:
        """Close every unclaimed stream whose hello begins with ``prefix``; return how many."""
        with self._condition:
            dropped = [each for each in self._unclaimed if each.hello.startswith(prefix)]
            self._unclaimed = [each for each in self._unclaimed if each not in dropped]
        for each in dropped:
            each.stream.close()
        return len(dropped)

    def close(self) -> None:
        """Stop accepting, end the thread, close every stream that was not handed out."""
        with self._condition:
            closed_before, self._closed = self._closed, True
            self._condition.notify_all()
            if not closed_before:
                self._nudge.give()
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_LIMIT_S)

    # -- on the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._clean_up)
            listening = self._bound.sock.fileno()
            while not self._closed:
                for fd, _ in self._poller.poll(1000 * _TICK_S if self._has_deadlines() else None):
                    if fd == listening:
                        self._accept()
                    elif fd in self._unproven:  # else dropped since the poller looked
                        self._proceed(fd, self._unproven[fd])
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
            self._drop(next(iter(self._unproven)), "too many unfinished handshakes")
        give_up_at = self._clock.now() + self._handshake_limit_s
        self._unproven[sock.fileno()] = _Unproven(Accepting(sock, self._secret), give_up_at)
        self._poller.register(sock, select.POLLIN)

    def _proceed(self, fd: int, peer: _Unproven) -> None:
        opening = peer.opening
        try:
            done = opening.advance()
        except ChannelClosed as error:
            self._drop(fd, error.why, logging.DEBUG)  # a probe, most often
            return
        except DanausError as error:
            self._drop(fd, str(error))
            return
        if done:
            self._forget(fd)
            self._hand_out(opening.stream, opening.peer_hello)
        elif opening.interest != peer.interest:
            peer.interest = opening.interest
            self._poller.modify(fd, peer.interest)

    def _hand_out(self, stream: Stream, hello: bytes) -> None:
        with self._condition:
            fitting = [prefix for prefix in self._on_hello if hello.startswith(prefix)]
            callback = self._on_hello[max(fitting, key=len)] if fitting else None
            if callback is None:
                give_up_at = self._clock.now() + self._unclaimed_limit_s
                self._unclaimed.append(_Unclaimed(stream, hello, give_up_at))
                self._condition.notify_all()
        if callback is not None:
            callback(stream, hello)

    def _expire(self) -> None:
        now = self._clock.now()
        for fd in [fd for fd, each in self._unproven.items() if each.give_up_at <= now]:
            self._drop(fd, f"no proof within {self._handshake_limit_s:.1f} s")
        with self._condition:
            kept = [each for each in self._unclaimed if each.give_up_at > now][-_MAX_UNCLAIMED:]
            late = [each for each in self._unclaimed if each not in kept]
            self._unclaimed = kept
        for each in late:
            each.stream.close()

    def _drop(self, fd: int, why: str, level: int = logging.WARNING) -> None:
        opening = self._forget(fd)
        _log.log(level, "%s: refused %s: %s", self.address, opening.peer, why)
        opening.close()

    def _forget(self, fd: int) -> Accepting:
        self._poller.unregister(fd)
        return self._unproven.pop(fd).opening

    def _clean_up(self) -> None:
        with self._condition:
            self._closed = True
            unclaimed, self._unclaimed = self._unclaimed, []
            self._condition.notify_all()
        self._bound.close()
        for peer in self._unproven.values():
            peer.opening.close()
        for each in unclaimed:
            each.stream.close()
        self._unproven.clear()
        with self._condition:
            self._nudge.close()
