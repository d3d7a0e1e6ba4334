"""Addresses may be written as URLs too."""

from __future__ import annotations

import pytest

from danaus.actor.spelled_address import address_of
from danaus.core.errors import AddressRefused
from danaus.wire.address import Address


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tcp:10.0.0.7:4500", Address.tcp("10.0.0.7", 4500)),
        ("tcp://10.0.0.7:4500", Address.tcp("10.0.0.7", 4500)),
        ("tcp://[::1]:1", Address.tcp("::1", 1)),
        ("unix:/tmp/a", Address.unix("/tmp/a")),
        ("ipc:///tmp/a", Address.unix("/tmp/a")),
    ],
)
def test_an_address_is_known_by_either_spelling(text, meant):
    assert address_of(text) == meant


@pytest.mark.parametrize("text", ["ipc://relative", "inproc://3423", "tcp://*", "10.0.0.7:4500"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(AddressRefused):
        address_of(text)
