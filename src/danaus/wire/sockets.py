"""Sockets for addresses: binding, dialling, options, and naming the other end.

Owns everything that is the same for asyncio and for threads.  All sockets are made non-blocking
and close-on-exec.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from danaus.core.errors import AddressRefused
from danaus.wire.address import Address

BACKLOG = 4096
# Of a connection between machines, as far as a system has them.
_BETWEEN_MACHINES = (
    ("TCP_KEEPIDLE", 10),  # seconds of quiet before the first question
    ("TCP_KEEPALIVE", 10),  # the same, as macOS calls it
    ("TCP_KEEPINTVL", 5),  # seconds between two questions
    ("TCP_KEEPCNT", 3),  # questions without an answer
    ("TCP_USER_TIMEOUT", 60_000),  # milliseconds for which bytes go unacknowledged
)

SockAddr = str | tuple[str, int] | tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One concrete place that an address stands for."""

    family: socket.AddressFamily
    sockaddr: SockAddr


def literal_endpoint(address: Address) -> Endpoint | None:
    """Return where ``address`` is, or None when its host is a name that must be resolved."""
    if address.scheme == "unix":
        return Endpoint(socket.AF_UNIX, address.path)
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return None
    if ip.version == 4:
        return Endpoint(socket.AF_INET, (address.host, address.port))
    scope = ip.scope_id or "0"
    index = int(scope) if scope.isdigit() else _interface_index(address, scope)
    return Endpoint(socket.AF_INET6, (address.host.partition("%")[0], address.port, 0, index))


def _interface_index(address: Address, name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        raise AddressRefused(str(address), f"no interface {name}") from error


def resolved(
    address: Address, found: Sequence[tuple[int, int, int, str, SockAddr]]
) -> list[Endpoint]:
    """Return the endpoints in an answer of ``getaddrinfo``, in its order, each once."""
    endpoints = {Endpoint(socket.AddressFamily(row[0]), row[4]): None for row in found}
    if not endpoints:
        raise AddressRefused(str(address), "the name stands for no address")
    return list(endpoints)


def resolve(address: Address) -> list[Endpoint]:
    """Return where ``address`` is; blocks for as long as the resolver does.

    Raises:
        AddressRefused: The name is not known.
    """
    if endpoint := literal_endpoint(address):
        return [endpoint]
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressRefused(str(address), f"cannot be resolved: {error}") from error
    return resolved(address, found)  # type: ignore[arg-type]


def make(endpoint: Endpoint) -> socket.socket:
    """Return a fresh non-blocking stream socket for dialling ``endpoint``."""
    sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


def is_local(endpoint: Endpoint) -> bool:
    """Tell by its address alone that whoever is there runs on this machine."""
    if endpoint.family == socket.AF_UNIX:
        return True
    ip = ipaddress.ip_address(str(endpoint.sockaddr[0]).partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def peer_of(sock: socket.socket) -> Endpoint:
    """Return where the other end is.

    Raises:
        OSError: It has left.
    """
    return Endpoint(socket.AddressFamily(sock.family), sock.getpeername())


def tune(sock: socket.socket) -> None:
    """Set the options of a connected socket: no delay, and keepalive between machines.

    Keepalive finds a peer whose machine or cable is gone while nothing is under way, the limit on
    unacknowledged bytes while something is.  A process that is only stopped is spared for as long
    as its kernel takes what it is sent.  On one machine the kernel tells by itself.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):
        if is_local(peer_of(sock)):
            return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _BETWEEN_MACHINES:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def peer_name(sock: socket.socket) -> str:
    """Return the other end's address in words, with its process where the kernel knows it."""
    try:
        if sock.family == socket.AF_UNIX:
            path = sock.getpeername() or sock.getsockname()
            if not hasattr(socket, "SO_PEERCRED"):
                return f"unix:{path}"
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            pid = struct.unpack("iII", raw)[0]
            return f"unix:{path} (pid {pid})"
        host, port = sock.getpeername()[:2]
        return str(Address.tcp(host, port))
    except (OSError, AddressRefused):
        return "a peer that left"


def address_of(sock: socket.socket) -> Address:
    """Return the local address of a bound socket."""
    if sock.family == socket.AF_UNIX:
        return Address.unix(sock.getsockname())
    host, port = sock.getsockname()[:2]
    return Address.tcp(host, port)


class BoundSocket:
    """A listening, non-blocking socket; its socket file is 0600 and goes away with it.

    Args:
        address: Where to bind; port 0 takes a free one.

    Raises:
        AddressRefused: It is in use, or not of this machine.
    """

    def __init__(self, address: Address) -> None:
        endpoint = resolve(address)[0]
        self.sock = make(endpoint)
        self._inode: int | None = None
        try:
            self._bind(address, endpoint)
            self.sock.listen(BACKLOG)
        except OSError as error:
            self.sock.close()
            raise AddressRefused(str(address), f"cannot be bound: {error.strerror}") from error
        except AddressRefused:
            self.sock.close()
            raise
        self.address = address_of(self.sock)
        if address.scheme == "unix":
            self._inode = os.stat(address.path).st_ino

    def _bind(self, address: Address, endpoint: Endpoint) -> None:
        if address.scheme == "unix":
            _clear_stale(address)
        else:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(endpoint.sockaddr)
        if address.scheme == "unix":
            os.chmod(address.path, 0o600)  # nobody gets in before it is listened on

    def accept(self) -> socket.socket | None:
        """Return a waiting connection, non-blocking and tuned, or None when there is none.

        Raises:
            OSError: No descriptors left, or the socket is closed.
        """
        try:
            sock, _ = self.sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # gone again already: the first read will tell
            tune(sock)
        return sock

    def close(self) -> None:
        """Stop listening and remove the socket file, if it still is this one's."""
        if self._inode is not None:
            with contextlib.suppress(OSError):
                if os.stat(self.address.path).st_ino == self._inode:
                    os.unlink(self.address.path)
            self._inode = None
        self.sock.close()


def _clear_stale(address: Address) -> None:
    """Remove the socket file of a process that is gone; keep one that is listened on.

    Whatever is no socket is left alone: binding fails on it.
    """
    try:
        if not stat.S_ISSOCK(os.stat(address.path, follow_symlinks=False).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except (FileNotFoundError, BlockingIOError):
            return  # nothing there; or listened on, with a full backlog: bind says so
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address.path)
            return
    raise AddressRefused(str(address), "another process listens there")
