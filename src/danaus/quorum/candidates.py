"""Where the service may be: the addresses of all candidates, as one text.

Owns the spelling, addresses with commas between them, and whom a member tries next.
"""

from __future__ import annotations

from danaus.core.errors import AddressRefused
from danaus.wire.address import Address


def parse_candidates(text: str) -> tuple[Address, ...]:
    """Return the addresses that a text names, in its order.

    Raises:
        AddressRefused: One is no address, or there is none.
    """
    found = tuple(Address.parse(each.strip()) for each in text.split(",") if each.strip())
    if not found:
        raise AddressRefused(text, "it names no quorum service")
    return found


class Candidates:
    """All candidates, and the one that is tried now.

    Args:
        addresses: At least one.
    """

    def __init__(self, addresses: tuple[Address, ...]) -> None:
        self._addresses = addresses
        self._turn = 0

    @property
    def current(self) -> Address:
        """The one to dial."""
        return self._addresses[self._turn]

    def turn(self, holder: str = "") -> None:
        """Try another: the one that is said to lead, if it is known here, else the next."""
        named = [n for n, each in enumerate(self._addresses) if str(each) == holder]
        others = [n for n in named if n != self._turn]
        self._turn = others[0] if others else (self._turn + 1) % len(self._addresses)

    def __str__(self) -> str:
        return ",".join(map(str, self._addresses))
