"""Talking with a host agent as somebody who is not its controller: who looks, or ends what is left.

Owns ``talk_to_agent``, the one place where such a session is opened, and ``AgentTalk``.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

from danaus.actor.agent_messages import FROM_AGENT, TO_AGENT, FromAgent, ToAgent
from danaus.core.errors import ChannelClosed
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session

M = TypeVar("M")

_OPEN_LIMIT_S = 3.0


class AgentTalk:
    """A session with an agent.

    Args:
        session: Open.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def say(self, message: ToAgent) -> None:
        """Send; never waits.

        Raises:
            ChannelClosed: The agent has hung up.
        """
        self._session.send([TO_AGENT.encode(message)])

    async def hear(self) -> FromAgent:
        """Return what the agent says next, however long that takes.

        Raises:
            ChannelClosed: It has hung up.
            FrameDamaged: It says something that is not known here: it is of another version.
        """
        parts = await self._session.receive()
        return FROM_AGENT.decode(parts[0], self._session.peer)

    async def hear_of(self, kind: type[M]) -> M:
        """Return the next that the agent says of one kind; what it says besides is passed over.

        Raises:
            ChannelClosed: It has hung up.
        """
        while True:
            told = await self.hear()
            if isinstance(told, kind):
                return told

    async def taken(self, limit_s: float, below_bytes: int) -> None:
        """Wait until the agent has taken what was said, but for so many bytes.

        Raises:
            ChannelClosed: It has hung up.
            TimeoutError: It takes nothing.
        """
        await self._session.drain(limit_s, below_bytes)

    async def until_it_ends(self) -> None:
        """Wait until the session has ended, whoever ended it."""
        await self._session.closed

    async def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(ChannelClosed):
            await self._session.close()


async def open_talk(address: Address, secret: Secret) -> AgentTalk:
    """Open a session with an agent; whoever called this closes it.

    Args:
        address: Where the agent listens.
        secret: The job's.

    Raises:
        AddressRefused, ChannelClosed, DeadlinePassed: It cannot be reached.
        HandshakeRefused: Whoever listens there does not hold the secret.
    """
    return AgentTalk(await open_session(address, secret, open_limit_s=_OPEN_LIMIT_S))


@contextlib.asynccontextmanager
async def talk_to_agent(address: Address, secret: Secret) -> AsyncIterator[AgentTalk]:
    """Hold a session with an agent, as ``open_talk`` opens it, for as long as the block lasts."""
    talk = await open_talk(address, secret)
    try:
        yield talk
    finally:
        await talk.close()
