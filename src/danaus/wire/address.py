"""Where a process is reached, as a value and as text.

Owns ``Address``, its spelling, and the choice of the address to advertise (W-4).  Opening
sockets is ``sockets``' work.

Spellings: ``unix:/absolute/path``, ``tcp:host:port``, ``tcp:[2001:db8::1]:port``.
"""

from __future__ import annotations

import dataclasses
import fcntl
import ipaddress
import os
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from danaus.core.errors import AddressRefused

UNIX_PATH_LIMIT_BYTES = 107 if sys.platform == "linux" else 103
_SIOCGIFADDR = 0x8915 if sys.platform == "linux" else 0xC0206921  # as all BSDs have it


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """One place to dial or to bind; port 0 asks the kernel for a free one."""

    scheme: Literal["unix", "tcp"]
    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def unix(cls, path: str | os.PathLike[str]) -> Address:
        """Return the address of a socket file.

        Raises:
            AddressRefused: The path is relative, or longer than the kernel takes.
        """
        text = os.fspath(path)
        size = len(os.fsencode(text))
        if not text.startswith("/") or "\0" in text:
            raise AddressRefused(f"unix:{text}", "the path must be absolute")
        if size > UNIX_PATH_LIMIT_BYTES:
            raise AddressRefused(
                f"unix:{text}",
                f"its path has {size} bytes and the kernel takes {UNIX_PATH_LIMIT_BYTES}; "
                "use a shorter folder",
            )
        return cls("unix", path=text)

    @classmethod
    def tcp(cls, host: str, port: int) -> Address:
        """Return the address of a port on a host (a name, an IPv4 or an IPv6 address).

        Raises:
            AddressRefused: The host is empty or the port is not in 0..65535.
        """
        if not host or any(c in host for c in "[]/ \0"):
            raise AddressRefused(f"tcp:{host}:{port}", "it names no host")
        if not 0 <= port <= 65535:
            raise AddressRefused(f"tcp:{host}:{port}", "the port must be in 0..65535")
        return cls("tcp", host=host, port=port)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that ``text`` spells; the inverse of ``str``.

        Raises:
            AddressRefused: ``text`` is no address.
        """
        scheme, _, rest = text.partition(":")
        if scheme == "unix":
            return cls.unix(rest)
        host, _, port = rest.rpartition(":")
        if scheme != "tcp" or not port.isascii() or not port.isdigit() or len(port) > 5:
            raise AddressRefused(text, "write unix:/path, tcp:host:port or tcp:[ipv6]:port")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise AddressRefused(text, "write IPv6 addresses in brackets")
        return cls.tcp(host, int(port))

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Tell whether only processes of this machine can dial it."""
        if self.scheme == "unix" or self.host == "localhost":
            return True
        ip = _ip(self.host)
        return ip is not None and ip.is_loopback

    @property
    def is_wildcard(self) -> bool:
        """Tell whether it stands for every interface, so that nobody can dial it as it is."""
        ip = _ip(self.host) if self.scheme == "tcp" else None
        return ip is not None and ip.is_unspecified


def advertised(bound: Address, peer: Address, override: str = "") -> Address:
    """Return the address under which ``peer`` reaches what is bound to ``bound`` (W-4).

    A wildcard is replaced by the local end of the route to the peer; nothing is sent to find it.

    Args:
        bound: The address bound, with its real port.
        peer: Any address on the peer's host.
        override: Name of an interface, a host name or an address to advertise instead.

    Raises:
        AddressRefused: No route, or ``override`` names an interface without a fitting address.
    """
    if bound.scheme == "unix":
        return bound
    if override:
        return dataclasses.replace(bound, host=_host_of(override, wants_v6=":" in bound.host))
    if not bound.is_wildcard:
        return bound
    if peer.scheme == "unix":
        return dataclasses.replace(bound, host="::1" if ":" in bound.host else "127.0.0.1")
    return dataclasses.replace(bound, host=_route_to(bound, peer))


def _route_to(bound: Address, peer: Address) -> str:
    family = socket.AF_UNSPEC if ":" in bound.host else socket.AF_INET
    why = "no route"
    try:
        found = socket.getaddrinfo(peer.host, peer.port or 9, family, socket.SOCK_DGRAM)
    except OSError as error:
        raise AddressRefused(str(peer), f"cannot be resolved: {error}") from error
    for each_family, kind, protocol, _, sockaddr in found:
        try:
            with socket.socket(each_family, kind, protocol) as probe:
                probe.connect(sockaddr)
                return str(probe.getsockname()[0])
        except OSError as error:
            why = str(error)
    raise AddressRefused(str(peer), f"no route from {bound}: {why}")


def _host_of(override: str, *, wants_v6: bool) -> str:
    if override not in (name for _, name in socket.if_nameindex()):
        return override.strip("[]")
    found = _v6_of(override) if wants_v6 else ""
    found = found or _v4_of(override) or _v6_of(override)
    if not found:
        raise AddressRefused(override, "this interface has no address")
    return found


def _v4_of(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _v6_of(interface: str) -> str:
    """Return the interface's first address that is not link-local (those need a scope)."""
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return ""
    for digits, _, _, _, _, name in (line.split() for line in lines):
        ip = ipaddress.IPv6Address(bytes.fromhex(digits))
        if name == interface and not ip.is_link_local:
            return str(ip)
    return ""
