"""What a candidate that does not lead answers: who does.

Owns its sessions.  Whoever comes is told so and the session is closed: nothing that is said here is
heard by a quorum machine, and no join is answered.
"""

from __future__ import annotations

import contextlib

from danaus.core.errors import ChannelClosed
from danaus.quorum.codecs import FROM_SERVICE
from danaus.quorum.messages import NotLeading
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, serve_sessions


class StandbyDoor:
    """Listens where the service would, and sends everybody on.

    Args:
        secret: The job's secret.

    Attributes:
        answer: What is said to whoever comes.
    """

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._listener: SessionListener | None = None
        self.answer = NotLeading("", "nobody is known to lead yet")

    async def open(self, address: Address) -> Address:
        """Listen; return where, with the real port.

        Raises:
            AddressRefused: It cannot be bound.
        """
        self._listener = await serve_sessions(address, self._secret, self._answer)
        return self._listener.address

    async def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    async def _answer(self, session: Session) -> None:
        with contextlib.suppress(ChannelClosed):
            session.send([FROM_SERVICE.encode(self.answer)])
        await session.close()
