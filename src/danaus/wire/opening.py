"""How a connection begins: connecting, TLS where it leaves the machine, and the proof over it.

Owns a socket from its first step until it is a proven stream.  One machine for both roles, for
loops, pollers and blocking threads alike: whoever drives it polls ``fileno`` for ``interest`` and
calls ``advance``, for as long as it likes; that a peer stands still never holds the caller.

Invariants:
    W-2: a connection whose other end is not loopback is TLS, on both sides; no setting says
    otherwise.  Who is dialled tells TLS from plain by the first byte, and takes plain from this
    machine only.
    Nothing of what follows the handshake is taken from the stream before it is handed out.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections.abc import Sequence

from danaus.core.errors import AddressRefused, ChannelClosed, HandshakeRefused
from danaus.wire import sockets
from danaus.wire.handshake import MAX_HELLO_BYTES, Acceptor, Dialler
from danaus.wire.secret import Secret
from danaus.wire.stream import Stream, TlsStream, plain_stream, why_refused
from danaus.wire.tls import identity

CROWDED_RETRY_S = 0.005
_LATER = (errno.EINPROGRESS, errno.EALREADY, errno.EAGAIN, errno.EWOULDBLOCK)
_TLS_HANDSHAKE = b"\x16"  # the first byte of every TLS record that begins a connection


class Opening:
    """One connection on its way; see ``Dialling`` and ``Accepting``.

    Attributes:
        peer: Whom to name in errors.
    """

    def __init__(self, sock: socket.socket, secret: Secret, hello: bytes, *, peer: str) -> None:
        self.peer = peer
        self._sock = sock
        self._secret, self._hello = secret, hello
        self._stream: Stream | None = None
        self._machine: Dialler | Acceptor | None = None
        self._out = b""

    @property
    def stream(self) -> Stream:
        """The stream; who takes it once the opening is done owns it."""
        if self._stream is None:
            raise ValueError("the connection has not begun yet")
        return self._stream

    @property
    def peer_hello(self) -> bytes:
        """What the peer said of itself; only once done."""
        if self._machine is None:
            raise ValueError("the peer has not proven itself yet")
        return self._machine.peer_hello

    @property
    def done(self) -> bool:
        """Tell whether the peer has proven itself, and this end to it."""
        return self._machine is not None and self._machine.done and not self._out

    @property
    def crowded(self) -> bool:
        """Tell that nothing can be polled now: call ``advance`` every ``CROWDED_RETRY_S``."""
        return False

    @property
    def interest(self) -> int:
        """What to poll for."""
        waits_to_send = self._out or (self._stream is not None and self._stream.unsent)
        return select.POLLOUT if waits_to_send else select.POLLIN

    def fileno(self) -> int:
        """Return the descriptor to poll; another one after a step, perhaps."""
        return self._sock.fileno()

    def advance(self) -> bool:
        """Go as far as the socket lets; tell whether the connection is proven.

        Raises:
            AddressRefused: Nobody listens there.
            HandshakeRefused: The peer does not hold the secret, or does not speak as we do.
            ChannelClosed: It left in the middle.
        """
        try:
            while not self.done:
                self._step()
        except (BlockingIOError, InterruptedError):
            return False
        except ssl.SSLError as error:
            raise HandshakeRefused(self.peer, why_refused(error)) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise ChannelClosed(self.peer, f"{why} during the handshake") from error
        return True

    def close(self) -> None:
        """Give the socket back."""
        self._sock.close()

    def _step(self) -> None:
        if self._stream is None:
            self._stream = self._begin()
        stream = self._stream
        if not stream.is_open:
            stream.handshake()
        if self._machine is None:
            self._machine = self._prover(stream.binding)
        if self._out:
            self._out = self._out[stream.send([self._out]) :]
            return
        data = bytearray(self._machine.need_bytes)
        count = stream.recv_into(memoryview(data))
        if not count:
            raise ChannelClosed(self.peer, "it left during the handshake")
        self._out = self._machine.feed(data[:count])

    def _tls(self, *, accepts: bool) -> TlsStream:
        return TlsStream(self._sock, identity(self._secret), peer=self.peer, accepts=accepts)

    def _begin(self) -> Stream:
        """Return the stream, as soon as it is known what kind it is."""
        raise NotImplementedError

    def _prover(self, binding: bytes) -> Dialler | Acceptor:
        raise NotImplementedError


class Accepting(Opening):
    """A connection that somebody else has opened.

    Args:
        sock: Connected and non-blocking.
        secret: The job's secret.
    """

    def __init__(self, sock: socket.socket, secret: Secret) -> None:
        super().__init__(sock, secret, b"", peer=sockets.peer_name(sock))

    def _begin(self) -> Stream:
        first = self._sock.recv(1, socket.MSG_PEEK)
        if not first:
            raise ChannelClosed(self.peer, "it left during the handshake")
        if first == _TLS_HANDSHAKE:
            return self._tls(accepts=True)
        if not sockets.is_local(sockets.peer_of(self._sock)):
            raise HandshakeRefused(
                self.peer, "it speaks without TLS, which connections between machines need (W-2)"
            )
        return plain_stream(self._sock)

    def _prover(self, binding: bytes) -> Acceptor:
        return Acceptor(self._secret, peer=self.peer, binding=binding)


class Dialling(Opening):
    """A connection that this process opens.

    Args:
        endpoints: Where to, the first that answers counts; at least one.
        secret: The job's secret.
        hello: What to say of oneself.
        peer: Whom to name in errors.

    Raises:
        AddressRefused: Nobody listens at any of them, so much is known at once.
    """

    def __init__(
        self, endpoints: Sequence[sockets.Endpoint], secret: Secret, hello: bytes, *, peer: str
    ) -> None:
        if len(hello) > MAX_HELLO_BYTES:
            raise ValueError(f"a hello of {len(hello)} bytes; {MAX_HELLO_BYTES} at most")
        self._endpoint, *self._others = endpoints
        self._tried: list[str] = []
        super().__init__(sockets.make(self._endpoint), secret, hello, peer=peer)
        self._connected = False
        self._try_connect()

    @property
    def connected(self) -> bool:
        """Tell whether the machine at the other end has answered."""
        return self._connected

    @property
    def crowded(self) -> bool:
        # A socket file's full backlog: such a socket polls as writable all the same.
        return not self._connected and self._sock.family == socket.AF_UNIX

    @property
    def interest(self) -> int:
        return select.POLLOUT if self._stream is None else super().interest

    def _step(self) -> None:
        if not self._connected:
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._refused(code) if code else self._try_connect()
            if not self._connected:
                raise BlockingIOError
        super()._step()

    def _try_connect(self) -> None:
        code = self._sock.connect_ex(self._endpoint.sockaddr)
        if code in (0, errno.EISCONN):
            self._connected = True
            sockets.tune(self._sock)
        elif code not in _LATER:
            self._refused(code)

    def _refused(self, code: int) -> None:
        """Try the next endpoint, if there is one."""
        self._sock.close()
        why = os.strerror(code)
        self._tried.append(f"{self._endpoint.sockaddr[0]}: {why}")
        if not self._others:
            many = f"tried {'; '.join(self._tried)}"
            raise AddressRefused(self.peer, many if len(self._tried) > 1 else why)
        self._endpoint, *self._others = self._others
        self._sock = sockets.make(self._endpoint)
        self._try_connect()

    def _begin(self) -> Stream:
        return (
            plain_stream(self._sock)
            if sockets.is_local(self._endpoint)
            else self._tls(accepts=False)
        )

    def _prover(self, binding: bytes) -> Dialler:
        machine = Dialler(self._secret, self._hello, peer=self.peer, binding=binding)
        self._out = machine.start()
        return machine
