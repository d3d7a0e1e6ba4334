"""Addresses as users write them: our spelling, or the URLs that Monarch's users know."""

from __future__ import annotations

from danaus.wire.address import Address


def address_of(text: str) -> Address:
    """Return the address that is spelled so, as in ``tcp:10.0.0.7:4500`` or ``tcp://10.0.0.7:4500``.

    Raises:
        AddressRefused: It is none.
    """
    scheme, is_url, rest = text.partition("://")
    if not is_url:
        return Address.parse(text)
    return Address.parse(f"{'unix' if scheme == 'ipc' else scheme}:{rest}")
