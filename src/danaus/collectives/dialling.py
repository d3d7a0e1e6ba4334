"""Dials a peer without blocking, so that one thread dials many and can leave at any moment.

Owns what is a member's about it: whom to name, and that every failure is a ``PeerLost``.  The
steps from an address to a proven stream are ``wire.opening``'s; how long to wait for them is the
caller's.  A stopped peer accepts connections (its kernel does) and says nothing: waiting for it
must be as abortable as everything else (Q-5).
"""

from __future__ import annotations

from danaus.core.errors import AddressRefused, ChannelClosed, HandshakeRefused, PeerLost
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.opening import CROWDED_RETRY_S, Dialling
from danaus.wire.secret import Secret
from danaus.wire.stream import Stream

__all__ = ["CROWDED_RETRY_S", "PendingDial"]


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
        try:
            self._opening = Dialling(sockets.resolve(address), secret, hello, peer=peer)
        except AddressRefused as error:
            raise self._lost(error) from error

    @property
    def crowded(self) -> bool:
        """Tell that nothing can be polled now: call ``advance`` every ``CROWDED_RETRY_S``."""
        return self._opening.crowded

    @property
    def connected(self) -> bool:
        """Tell whether the peer's machine has answered, whatever the peer itself does."""
        return self._opening.connected

    @property
    def interest(self) -> int:
        """What to poll for."""
        return self._opening.interest

    @property
    def stream(self) -> Stream:
        """The proven stream, once ``advance`` says so; the caller's from then on."""
        return self._opening.stream

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._opening.fileno()

    def advance(self) -> bool:
        """Go as far as the socket lets; tell whether the connection is proven.

        Raises:
            PeerLost: The peer went away or did not prove itself.
        """
        try:
            return self._opening.advance()
        except (AddressRefused, ChannelClosed, HandshakeRefused) as error:
            raise self._lost(error) from error

    def _lost(self, error: AddressRefused | ChannelClosed | HandshakeRefused) -> PeerLost:
        why = f"cannot be dialled: {error.why}" if isinstance(error, AddressRefused) else error.why
        return PeerLost(self.peer, why)

    def close(self) -> None:
        """Give the socket back."""
        self._opening.close()
