"""Addresses of this machine that other machines could dial: there, connections are TLS (W-2)."""

from __future__ import annotations

import socket

from danaus.core.errors import AddressRefused
from danaus.wire.address import Address, advertised
from danaus.wire.sockets import BoundSocket


def own_host() -> str:
    """Return an IPv4 address of this machine that is not loopback; empty if it has none."""
    for _, interface in socket.if_nameindex():
        try:
            found = advertised(Address.tcp("0.0.0.0", 0), Address.tcp("192.0.2.1", 9), interface)
            if ":" not in found.host and not found.is_loopback:
                BoundSocket(found).close()
                return found.host
        except AddressRefused:
            continue  # it has no address, or is down
    return ""
