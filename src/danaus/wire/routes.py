"""Which of this machine's addresses others can dial (W-4).

Owns the choice of where to listen for peers on several networks; which address one peer is then
told is ``address.advertised``'s answer.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from danaus.core.errors import AddressRefused
from danaus.wire.address import Address, advertised

ANY_V4, ANY_V6 = "0.0.0.0", "::"


def host_to_bind(peers: Sequence[Address], override: str = "") -> str:
    """Return the host to bind so that all ``peers`` can dial what listens there.

    Where every route to them leaves by one address it is that one, else every interface.

    Args:
        peers: Where they listen; at least one.
        override: Name of an interface, a host name or an address to bind instead.

    Raises:
        AddressRefused: There is no route to one of them, or no such interface or host.
    """
    if override:
        return _resolved(advertised(Address.tcp(_any(peers[0]), 0), peers[0], override).host)
    ours = [advertised(Address.tcp(_any(peer), 0), peer) for peer in peers]
    if all(each.is_loopback for each in ours):
        ours = ours[:1]
    if len({each.host for each in ours}) == 1:
        return ours[0].host
    return ANY_V6 if any(":" in each.host for each in ours) else ANY_V4


def _any(peer: Address) -> str:
    return ANY_V6 if ":" in peer.host else ANY_V4


def _resolved(host: str) -> str:
    """Return the address that a name stands for on this machine: what is bound is told as it is."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressRefused(
            f"tcp:{host}:0", f"neither an interface nor a host: {error.strerror}"
        ) from error
    return str(found[0][4][0])


class ReservedPort:
    """A port of this machine that nobody else is given while a service of ours is away.

    A socket that is bound and does not listen keeps it; who binds the same address with
    ``SO_REUSEADDR`` may listen there.

    Args:
        host: The address to reserve it at.
        port: Which; 0: one that is free.

    Raises:
        AddressRefused: There is no such address here, or somebody listens at that port.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.bind((host, port))
        except OSError as error:
            self._sock.close()
            raise AddressRefused(
                str(Address.tcp(host, port)), f"cannot be bound: {error.strerror}"
            ) from error
        self.address = Address.tcp(host, self._sock.getsockname()[1])

    def close(self) -> None:
        """Give the port back."""
        self._sock.close()
