"""Dials a peer without blocking, so that one thread dials many and can leave at any moment.

Owns the steps from an address to a proven connection; who is dialled, and for how long, is the
caller's.  A stopped peer accepts connections (its kernel does) and says nothing: waiting for it
must be as abortable as everything else (Q-5).
"""

from __future__ import annotations

import errno
import os
import select
import socket

from danaus.core.errors import AddressRefused, HandshakeRefused, PeerLost
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.handshake import Dialler
from danaus.wire.secret import Secret

_LATER = (errno.EINPROGRESS, errno.EALREADY, errno.EAGAIN, errno.EWOULDBLOCK)


class PendingDial:
    """One connection on its way.

    Args:
        peer: Whom to name in errors.
        address: Where the peer listens.
        secret: The job's secret.
        hello: What to say of oneself.

    Raises:
        PeerLost: Nobody listens there, or its host name is not known.
    """

    def __init__(self, peer: str, address: Address, *, secret: Secret, hello: bytes) -> None:
        self.peer = peer
        self._dialler = Dialler(secret, hello, peer=peer)
        self._out = self._dialler.start()
        try:
            self._endpoints = sockets.resolve(address)
        except AddressRefused as error:
            raise PeerLost(peer, error.message()) from error
        self._connected = False
        self._connect()

    def _connect(self) -> None:
        self._endpoint = self._endpoints.pop(0)
        self.sock = sockets.make(self._endpoint)
        self._try_connect()

    def _try_connect(self) -> None:
        code = self.sock.connect_ex(self._endpoint.sockaddr)
        if code in (0, errno.EISCONN):
            self._connected = True
            sockets.tune(self.sock)
        elif code not in _LATER:
            self._refused(code)

    def _refused(self, code: int) -> None:
        """Try the host's next address, if it has one."""
        self.sock.close()
        if not self._endpoints:
            raise PeerLost(self.peer, f"cannot be dialled: {os.strerror(code)}")
        self._connect()

    @property
    def crowded(self) -> bool:
        """Tell that the peer's backlog is full: nothing will wake us, try again soon."""
        return not self._connected and self.sock.family == socket.AF_UNIX

    @property
    def interest(self) -> int:
        """What to poll the socket for."""
        return select.POLLOUT if self._out or not self._connected else select.POLLIN

    def advance(self) -> bool:
        """Go as far as the socket lets; tell whether the connection is proven.

        Raises:
            PeerLost: The peer went away or did not prove itself.
        """
        if not self._connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._refused(code)
            self._try_connect()
        try:
            while self._connected and self._step():
                pass
        except (BlockingIOError, InterruptedError):
            return False
        except HandshakeRefused as error:
            raise PeerLost(self.peer, error.message()) from error
        except OSError as error:
            raise PeerLost(self.peer, error.strerror or str(error)) from error
        return self._dialler.done and not self._out

    def _step(self) -> bool:
        """Send or receive once; tell whether there is more to do."""
        if self._out:
            self._out = self._out[self.sock.send(self._out) :]
            return True
        if self._dialler.done:
            return False
        # Never more than is due: what comes after the handshake is the lane's to read.
        data = self.sock.recv(self._dialler.need_bytes)
        if not data:
            raise PeerLost(self.peer, "it closed the connection during the handshake")
        self._out = self._dialler.feed(data)
        return True

    def close(self) -> None:
        """Give the socket back."""
        self.sock.close()
