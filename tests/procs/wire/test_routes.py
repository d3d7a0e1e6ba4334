"""Where to listen so that peers can dial it (W-4), by asking this machine's own routes."""

from __future__ import annotations

import asyncio
import socket

import pytest

from danaus.core.errors import AddressRefused
from danaus.wire.address import Address
from danaus.wire.looking import look_for
from danaus.wire.routes import ReservedPort, host_to_bind
from danaus.wire.sockets import BoundSocket


def peers(*hosts: str) -> list[Address]:
    return [Address.tcp(host, 4500) for host in hosts]


def test_peers_on_loopback_are_listened_for_on_loopback_alone() -> None:
    assert host_to_bind(peers("127.0.0.2", "127.0.0.3")) == "127.0.0.1"
    assert host_to_bind(peers("::1")) == "::1"


def test_peers_on_several_networks_are_listened_for_on_all() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no route but loopback's")
        outward = probe.getsockname()[0]
    assert host_to_bind(peers("198.51.100.1")) == outward
    assert host_to_bind(peers("198.51.100.1", "127.0.0.2")) == "0.0.0.0"


def test_an_interface_an_address_or_a_name_may_be_named_instead() -> None:
    far = peers("198.51.100.1")
    assert host_to_bind(far, "lo") == "127.0.0.1"
    assert host_to_bind(peers("2001:db8::1"), "lo") == "::1", "of the kind that the peers dial"
    assert host_to_bind(far, "127.0.0.9") == "127.0.0.9"
    assert host_to_bind(far, "localhost") in ("127.0.0.1", "::1")
    with pytest.raises(AddressRefused, match="neither an interface nor a host"):
        host_to_bind(far, "no-such-host.invalid")


def test_a_reserved_port_is_free_for_who_follows_and_for_nobody_else() -> None:
    port = ReservedPort("127.0.0.1")
    try:
        for _ in range(2):  # a service, and the one that takes its place
            listener = BoundSocket(port.address)
            assert asyncio.run(look_for(port.address)) == "there"
            listener.close()
            assert asyncio.run(look_for(port.address)) == "gone"
        others = [ReservedPort("127.0.0.1") for _ in range(50)]
        assert port.address not in [other.address for other in others]
        for other in others:
            other.close()
    finally:
        port.close()


def test_an_address_of_another_machine_cannot_be_reserved() -> None:
    with pytest.raises(AddressRefused, match="cannot be bound"):
        ReservedPort("198.51.100.1")
