"""The controller's door: what another process of the run asks of its controller.

Owns the messages, ``serve_door`` and ``Door``, its other side: faults that need the controller's
help, changes of the crew (drain, scale, roll), the run's end.  The door's address stands in the run
folder.
Both sides prove that they hold the run's secret before a word is read, and nothing that comes
through is unpickled (W-2).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import msgspec

from danaus.app.chaos_fault import Fault
from danaus.app.chaos_spec import write
from danaus.app.run_folder import RunFolder
from danaus.core.errors import AddressRefused, ConfigError, DanausError, DeadlinePassed
from danaus.wire.address import Address
from danaus.wire.codec import Codec
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, open_session, serve_sessions

_OPEN_LIMIT_S = 2.0
ANSWER_LIMIT_S = 10.0


class Strike(msgspec.Struct, frozen=True, tag="strike"):
    """Let a worker strike itself."""

    spec: str
    id: str


class HoldService(msgspec.Struct, frozen=True, tag="hold_service"):
    """Keep the quorum service away for so many seconds at its next death."""

    seconds: float


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Have a replica, or all of a host, leave and stay away; ``undo``: use the host again.

    ``grace_s``: kill what has not left by then.
    """

    target: str
    grace_s: float | None = None
    undo: bool = False


class Scale(msgspec.Struct, frozen=True, tag="scale"):
    """Let so many replicas train."""

    replicas: int


class Roll(msgspec.Struct, frozen=True, tag="roll"):
    """Drain and restart the next host of a roll, or the one that is named."""

    host: str = ""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the run; answered at once."""

    reason: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It was done: ``words`` for a person.  ``more``: of a roll, hosts are left."""

    words: str = ""
    more: bool = False


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It was not done."""

    why: str


Asked = Strike | HoldService | Drain | Scale | Roll | Stop
_ASKED: Codec[Asked] = Codec(Asked)
_ANSWER: Codec[Done | Refused] = Codec(Done | Refused)

OnAsked = Callable[[Asked], Awaitable[Done]]
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
            answer: Done | Refused
            try:
                answer = await on_asked(_ASKED.decode(parts[0], session.peer))
            except DanausError as error:
                answer = Refused(str(error).partition("\n")[0])
            session.send([_ANSWER.encode(answer)])

    return await serve_sessions(address, secret, serve)


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
        self.ask(Strike(write(fault), fault.id))

    def hold_service(self, seconds: float) -> None:
        """Keep the quorum service away for so many seconds at its next death.

        Raises:
            DanausError: Nobody answers.
        """
        self.ask(HoldService(seconds))

    def ask(self, asked: Asked, limit_s: float | None = ANSWER_LIMIT_S) -> Done:
        """Ask, and wait until it is done.

        Args:
            asked: For what.
            limit_s: How long it may take; None: as long as a step takes, or longer.

        Raises:
            DanausError: Nobody answers, or the wish is refused.
        """
        address = self._folder.addresses().get("door")
        if not isinstance(address, str):
            raise ConfigError("the run's controller has no door", "it must be alive for this")
        secret = self._folder.secret()
        try:
            answer = asyncio.run(_asked(Address.parse(address), secret, asked, limit_s=limit_s))
        except AddressRefused as refused:
            where = os.path.relpath(self._folder.path)
            to_do = f"danaus train --resume {where}"
            raise ConfigError("no controller of this run is alive", refused.why, to_do) from refused
        if isinstance(answer, Refused):
            raise ConfigError("the run's controller did not do it", answer.why)
        return answer


async def _asked(
    address: Address, secret: Secret, asked: Asked, *, limit_s: float | None
) -> Done | Refused:
    session = await open_session(address, secret, open_limit_s=_OPEN_LIMIT_S)
    try:
        session.send([_ASKED.encode(asked)])
        async with asyncio.timeout(limit_s):
            return _ANSWER.decode((await session.receive())[0], session.peer)
    except TimeoutError as error:
        raise DeadlinePassed("the run's controller to answer", limit_s or 0.0) from error
    finally:
        await session.close()
