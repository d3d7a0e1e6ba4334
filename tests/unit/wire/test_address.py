"""Addresses as values and text."""

from __future__ import annotations

import pickle
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.errors import AddressRefused
from danaus.wire.address import UNIX_PATH_LIMIT_BYTES, Address, advertised


@pytest.mark.parametrize(
    "text",
    ["unix:/run/a b/s", "tcp:127.0.0.1:0", "tcp:[::1]:80", "tcp:node-7.example:65535",
     "tcp:[fe80::1%eth0]:9"],
)  # fmt: skip
def test_text_and_value_are_two_forms_of_one_thing(text: str) -> None:
    address = Address.parse(text)
    assert str(address) == text
    assert Address.parse(str(address)) == address
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "unix:", "unix:relative", "unix:/a\0b", "tcp:", "tcp:host", "tcp::1", "tcp:host:",
     "tcp:host:-1", "tcp:host:65536", "tcp:host:9999999999", "tcp:::1:80", "tcp:[::1:80",
     "tcp:a b:1", "tcp:host:٣", "udp:host:1", "host:1", "unix:/" + "x" * UNIX_PATH_LIMIT_BYTES],
)  # fmt: skip
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(AddressRefused):
        Address.parse(text)


@given(st.text(st.sampled_from("unixtcp:/[]01 .\0ä"), max_size=20))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = Address.parse(text)
    except AddressRefused:
        return
    assert Address.parse(str(address)) == address


def test_the_longest_path_is_taken() -> None:
    Address.unix("/" + "x" * (UNIX_PATH_LIMIT_BYTES - 1))
    with pytest.raises(AddressRefused, match="108 bytes"):
        Address.unix("/" + "x" * UNIX_PATH_LIMIT_BYTES)
    with pytest.raises(AddressRefused):
        Address.unix("/" + "ä" * 60)


@pytest.mark.parametrize(
    ("text", "loopback", "wildcard"),
    [("unix:/s", True, False), ("tcp:127.0.0.9:1", True, False), ("tcp:[::1]:1", True, False),
     ("tcp:localhost:1", True, False), ("tcp:0.0.0.0:1", False, True), ("tcp:[::]:1", False, True),
     ("tcp:10.1.2.3:1", False, False), ("tcp:example:1", False, False)],
)  # fmt: skip
def test_who_can_dial_it_is_known(text: str, loopback: bool, wildcard: bool) -> None:
    address = Address.parse(text)
    assert (address.is_loopback, address.is_wildcard) == (loopback, wildcard)


def test_what_is_advertised_can_be_dialled() -> None:
    """W-4: a wildcard is replaced by the local end of the route to the peer."""
    here = Address.parse("tcp:127.0.0.1:7")
    everywhere = Address.parse("tcp:0.0.0.0:5")
    assert str(advertised(everywhere, here)) == "tcp:127.0.0.1:5"
    assert str(advertised(Address.parse("tcp:[::]:5"), Address.parse("tcp:[::1]:7"))) == (
        "tcp:[::1]:5"
    )
    assert str(advertised(everywhere, Address.unix("/s"))) == "tcp:127.0.0.1:5"
    assert str(advertised(Address.parse("tcp:[::]:5"), Address.unix("/s"))) == "tcp:[::1]:5"
    exact = Address.parse("tcp:10.0.0.1:5")
    assert advertised(exact, here) == exact
    assert advertised(Address.unix("/s"), here) == Address.unix("/s")


def test_what_is_advertised_can_be_named() -> None:
    peer, bound = Address.parse("tcp:127.0.0.1:7"), Address.parse("tcp:0.0.0.0:5")
    assert str(advertised(bound, peer, "node-3")) == "tcp:node-3:5"
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    assert str(advertised(bound, peer, loopback)) == "tcp:127.0.0.1:5"
    assert str(advertised(bound, peer, "10.2.3.4")) == "tcp:10.2.3.4:5"
