"""A stream of bytes over one connected, non-blocking socket: plain, or sealed by TLS.

Owns the socket, and everything that differs between plain and TLS once a connection stands.
Who makes which of the two, and the handshakes, are ``opening``'s work.

One thread at a time uses a stream, but for ``shut``, which may come from any other, and for
``send`` where ``any_thread`` says that it may run beside a ``recv_into``.

Invariants:
    Nothing here ever waits: what would block raises ``BlockingIOError``.
    ``send`` counts only bytes that the kernel has.
    Whoever stops reading before ``recv_into`` would block looks at ``pending``: bytes that were
    received already make no descriptor readable.
    An end is never trusted to be whole: it may be forged below TLS.  What must be whole says so
    itself (frames have lengths, sessions agree on their end), so nobody says goodbye in TLS.
"""

from __future__ import annotations

import array
import contextlib
import errno
import hashlib
import itertools
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from danaus.core.errors import HandshakeRefused
from danaus.wire.frame import Buffer
from danaus.wire.tls import Identity

Buffers = Sequence[Buffer] | deque[Buffer]

_IOVECS = 64
MOST_FDS = 64
_FDS_SPACE = socket.CMSG_SPACE(MOST_FDS * 4)
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_INBOUND_BYTES = 256 * 1024
_SEAL_BYTES = 256 * 1024  # sealed at once; what the kernel does not take of it stays in memory
_JOIN_BYTES = 16 * 1024  # a record's most: joined, a head and a small payload cost one


class Stream:
    """Bytes as they are.

    Args:
        sock: A connected stream socket; the stream closes it.

    Attributes:
        sock: For its options and names.
        is_open: Whether bytes may be exchanged; until then call ``handshake``.
        pending: Whether bytes may lie ready that no readiness of the socket will tell of.
        unsent: Whether ``send`` or ``handshake`` wait for the socket to be writable.
        any_thread: Whether one thread may send while another receives.
        binding: What both ends know of this very connection and nobody in between can bring about.
    """

    is_open = True
    pending = False
    unsent = False
    any_thread = True
    binding = b""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock

    def fileno(self) -> int:
        """Return the descriptor to poll; -1 once closed."""
        return self.sock.fileno()

    def handshake(self) -> None:
        """Go on with opening the stream; returns once it is open."""

    def recv_into(self, view: memoryview) -> int:
        """Receive into ``view``; return how many bytes came, 0 at the end.

        Raises:
            BlockingIOError: None are there now.
            OSError: The connection broke.
        """
        return self.sock.recv_into(view)

    def send(self, buffers: Buffers) -> int:
        """Send the first bytes of ``buffers``, which are not empty; return how many.

        Raises:
            BlockingIOError: The socket is full; the same bytes must be offered first next time.
            OSError: The connection broke.
        """
        if len(buffers) == 1:
            return self.sock.send(buffers[0])
        return self.sock.sendmsg(tuple(itertools.islice(buffers, _IOVECS)))

    def has_more(self) -> bool:
        """Tell whether more bytes lie ready; an end or an error counts as one."""
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        return True

    def shut(self) -> None:
        """End both directions now; the descriptor stays, as others may poll it."""
        with contextlib.suppress(OSError):  # the peer was faster
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor back."""
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class Carrier(bytes):
    """The first bytes of something that descriptors go with."""

    fds: tuple[int, ...] = ()


class UnixStream(Stream):
    """Bytes as they are, between processes of one host, and descriptors with them.

    Attributes:
        carries: Whether a ``Carrier`` may be among what is to be sent.
        fds: What has come along and was not taken, in order.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.carries = False
        self.fds: deque[int] = deque()

    def recv_into(self, view: memoryview) -> int:
        count, with_it, _, _ = self.sock.recvmsg_into([view], _FDS_SPACE, _CLOSE_ON_EXEC)
        for level, kind, data in with_it:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = array.array("i")
                whole.frombytes(data[: len(data) - len(data) % whole.itemsize])
                for fd in whole if not _CLOSE_ON_EXEC else ():
                    os.set_inheritable(fd, False)
                self.fds.extend(whole)
        return count

    def send(self, buffers: Buffers) -> int:
        if len(buffers) == 1 and not self.carries:
            return self.sock.send(buffers[0])
        if not self.carries:
            return super().send(buffers)
        first = buffers[0]
        if isinstance(first, Carrier):
            fds = array.array("i", first.fds)
            return self.sock.sendmsg([first], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        rest = itertools.islice(buffers, _IOVECS)
        return self.sock.sendmsg(
            tuple(itertools.takewhile(lambda each: not isinstance(each, Carrier), rest))
        )

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.popleft())
        super().close()


def plain_stream(sock: socket.socket) -> Stream:
    """Return a stream that is not sealed, over whatever socket."""
    return (UnixStream if sock.family == socket.AF_UNIX else Stream)(sock)


class _Scratch(threading.local):
    """One thread's memory for bytes on their way into TLS: nothing stays in it."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_INBOUND_BYTES))


_scratch = _Scratch()


class TlsStream(Stream):
    """Bytes sealed by TLS 1.3, between two ends that show certificates of one authority.

    TLS runs in memory and this class carries its bytes, so that many records move by one system
    call, and waiting is for what the socket can do and nothing else.

    Args:
        sock: A connected stream socket; the stream closes it.
        identity: Who this end is and whom it takes for one of its own.
        peer: Whom to name in errors.
        accepts: Whether this end was dialled.
    """

    def __init__(
        self, sock: socket.socket, identity: Identity, *, peer: str, accepts: bool
    ) -> None:
        super().__init__(sock)
        self.is_open = self.any_thread = False
        self._peer = peer
        self._accepts = accepts
        self._certificate = identity.certificate
        self._inbound, self._outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = identity.accepts if accepts else identity.dials
        self._tls = context.wrap_bio(self._inbound, self._outbound, server_side=accepts)
        self._sealed = memoryview(b"")  # sealed, and not the kernel's yet
        self._num_taken = 0  # bytes of the caller that these are

    @property
    def unsent(self) -> bool:  # type: ignore[override]
        return bool(self._sealed)

    @property
    def binding(self) -> bytes:  # type: ignore[override]
        theirs = self._tls.getpeercert(binary_form=True) or b""
        both = (theirs, self._certificate) if self._accepts else (self._certificate, theirs)
        return b"".join(hashlib.sha256(each).digest() for each in both)

    # -- opening ------------------------------------------------------------------------------

    def handshake(self) -> None:
        """Go on with the handshake.

        Raises:
            BlockingIOError: It waits, for writing if ``unsent``, else for reading.
            HandshakeRefused: The peer speaks no TLS 1.3, or is of another authority.
            OSError: The connection broke.
        """
        while not self.is_open:
            self._flush()
            try:
                self._tls.do_handshake()
                self.is_open = True
            except ssl.SSLWantReadError:
                self._flush()
                if not self._fetch():
                    raise ConnectionResetError("it left in the middle of TLS") from None
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):
                    self._flush()  # tells the peer why, if it can be told
                raise HandshakeRefused(self._peer, why_refused(error)) from error
        self._flush()
        self.pending = bool(self._inbound.pending)

    # -- receiving ----------------------------------------------------------------------------

    def recv_into(self, view: memoryview) -> int:
        num = 0
        while True:
            try:
                while num < len(view):
                    got = self._tls.read(len(view) - num, view[num:] if num else view)
                    if not got:
                        return num  # a peer that does say goodbye
                    num += int(got)
                self.pending = bool(self._tls.pending() or self._inbound.pending)
                return num
            except ssl.SSLWantReadError:
                self.pending = False
                if num:
                    return num
            except ssl.SSLZeroReturnError:
                return num
            except ssl.SSLError as error:
                raise _broken(error) from error
            if not self._fetch():
                return 0

    def _fetch(self) -> bool:
        """Bring what has arrived into TLS; tell whether the peer is still there."""
        count = self.sock.recv_into(_scratch.view)
        self._inbound.write(_scratch.view[:count])
        return count > 0

    def has_more(self) -> bool:
        return self.pending or super().has_more()

    # -- sending ------------------------------------------------------------------------------

    def send(self, buffers: Buffers) -> int:
        if not self._num_taken:
            self._num_taken = self._seal(buffers)
        self._flush()
        taken, self._num_taken = self._num_taken, 0
        return taken

    def _seal(self, buffers: Buffers) -> int:
        """Seal the first bytes of ``buffers``; return how many."""
        first = buffers[0]
        if len(first) >= _JOIN_BYTES or len(buffers) == 1:
            return self._tls.write(memoryview(first)[:_SEAL_BYTES])
        joined = bytearray()
        for buffer in itertools.islice(buffers, _IOVECS):
            joined += memoryview(buffer)[: _JOIN_BYTES - len(joined)]
            if len(joined) == _JOIN_BYTES:
                break
        return self._tls.write(joined)

    def _flush(self) -> None:
        """Hand what is sealed to the kernel."""
        while self._sealed or self._outbound.pending:
            if not self._sealed:
                self._sealed = memoryview(self._outbound.read())
            self._sealed = self._sealed[self.sock.send(self._sealed) :]


def _broken(error: ssl.SSLError) -> ssl.SSLError:
    """Return the error for a peer whose bytes TLS does not take, or who says so of ours."""
    reason = _reason(error)
    why = "the peer ended TLS" if "ALERT" in reason else "damaged TLS record"
    return ssl.SSLError(errno.EBADMSG, f"{why}: {reason}")


def why_refused(error: ssl.SSLError) -> str:
    """Return in words why TLS could not begin."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not of this job's authority ({error.verify_message}): "
            "it does not hold this job's secret"
        )
    return f"no TLS 1.3 with it: {_reason(error)}"


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's word for what happened, or ours where the error is ours."""
    return getattr(error, "reason", None) or error.strerror or str(error)
