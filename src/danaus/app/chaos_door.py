"""The controller's door: what faults need its help for, asked by another process of the run.

Owns the messages, ``serve_door`` and ``Door``, its other side.  The door's address stands in the
run folder.  Both sides prove that they hold the run's secret before a word is read, and nothing
that comes through is unpickled (W-2).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import msgspec

from danaus.app.chaos_fault import Fault
from danaus.app.chaos_spec import read, write
from danaus.app.run_folder import RunFolder
from danaus.core.errors import ConfigError, DanausError, DeadlinePassed
from danaus.wire.address import Address
from danaus.wire.codec import Codec
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, open_session, serve_sessions

_OPEN_LIMIT_S = 2.0
_ANSWER_LIMIT_S = 10.0


class Strike(msgspec.Struct, frozen=True, tag="strike"):
    """Let a worker strike itself."""

    spec: str
    id: str


class HoldService(msgspec.Struct, frozen=True, tag="hold_service"):
    """Keep the quorum service away for so many seconds at its next death."""

    seconds: float


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It was done."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It was not done."""

    why: str


Asked = Strike | HoldService
_ASKED: Codec[Asked] = Codec(Asked)
_ANSWER: Codec[Done | Refused] = Codec(Done | Refused)

OnAsked = Callable[[Fault | HoldService], Awaitable[None]]
"""Does what was asked for; a ``DanausError`` refuses it."""


async def serve_door(address: Address, secret: Secret, on_asked: OnAsked) -> SessionListener:
    """Open the door; whoever called this closes it.

    Args:
        address: Where to listen.
        secret: The run's.
        on_asked: Called with each wish, one at a time per session.

    Raises:
        AddressRefused: The address cannot be bound.
    """

    async def serve(session: Session) -> None:
        async for parts in session:
            asked = _ASKED.decode(parts[0], session.peer)
            try:
                await on_asked(_fault(asked) if isinstance(asked, Strike) else asked)
            except DanausError as error:
                answer: Done | Refused = Refused(str(error).partition("\n")[0])
            else:
                answer = Done()
            session.send([_ANSWER.encode(answer)])

    return await serve_sessions(address, secret, serve)


def _fault(asked: Strike) -> Fault:
    return dataclasses.replace(read(asked.spec), id=asked.id)


class Door:
    """Ask the controller of a run, from any thread that runs no event loop.

    Args:
        folder: The run's.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def strike(self, fault: Fault) -> None:
        """Let a worker strike itself with a resolved fault.

        Raises:
            DanausError: Nobody answers, or the wish is refused.
        """
        self._ask(Strike(write(fault), fault.id))

    def hold_service(self, seconds: float) -> None:
        """Keep the quorum service away for so many seconds at its next death.

        Raises:
            DanausError: Nobody answers.
        """
        self._ask(HoldService(seconds))

    def _ask(self, asked: Asked) -> None:
        address = self._folder.addresses().get("door")
        if not isinstance(address, str):
            raise ConfigError("the run's controller has no door", "it must be alive for this")
        answer = asyncio.run(_asked(Address.parse(address), self._folder.secret(), asked))
        if isinstance(answer, Refused):
            raise ConfigError("the run's controller did not do it", answer.why)


async def _asked(address: Address, secret: Secret, asked: Asked) -> Done | Refused:
    session = await open_session(address, secret, open_limit_s=_OPEN_LIMIT_S)
    try:
        session.send([_ASKED.encode(asked)])
        async with asyncio.timeout(_ANSWER_LIMIT_S):
            return _ANSWER.decode((await session.receive())[0], session.peer)
    except TimeoutError as error:
        raise DeadlinePassed("the run's controller to answer", _ANSWER_LIMIT_S) from error
    finally:
        await session.close()
