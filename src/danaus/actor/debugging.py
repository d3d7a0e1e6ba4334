"""Breakpoints in actors: the debugger runs where the actor does, its words go to one place.

Owns ``debug_controller`` and what ``breakpoint()`` does in a worker.  While an actor stands at a
breakpoint its thread waits; of an ``async`` endpoint that is the loop of all such actors there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import itertools
import pdb
import sys
import threading
from types import FrameType
from typing import Any, TypeVar

from danaus.actor.contexts import Context
from danaus.actor.controllers import get_or_spawn_controller
from danaus.actor.endpoints import Actor, concurrent_endpoint
from danaus.actor.future import Future
from danaus.actor.process_runtime import context

T = TypeVar("T")

_ASK_AGAIN_S = 0.5


@dataclasses.dataclass(frozen=True)
class Breakpoint:
    """One actor that stands at a breakpoint.

    Args:
        number: To name it by.
        process_id: Its process.
        actor: Its name and place.
        where: File and line.
    """

    number: int
    process_id: str
    actor: str
    where: str


class _Session:
    def __init__(self, at: Breakpoint) -> None:
        self.at = at
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.said: asyncio.Queue[str] = asyncio.Queue()


class DebugController(Actor):
    """Where actors at breakpoints and those who look at them meet."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._sessions: dict[int, _Session] = {}
        self._entered = asyncio.Event()

    @concurrent_endpoint
    async def breakpoints(self, limit_s: float = 0.0) -> list[Breakpoint]:
        """Return who stands at a breakpoint.

        Args:
            limit_s: How long to wait for the first, should nobody stand at one now.
        """
        if not self._sessions and limit_s > 0:
            self._entered.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._entered.wait()
        return [session.at for session in self._sessions.values()]

    @concurrent_endpoint
    async def write(self, number: int, line: str) -> None:
        """Give the debugger at a breakpoint a line of input, as in ``next``."""
        self._sessions[number].lines.put_nowait(line)

    @concurrent_endpoint
    async def read(self, number: int, limit_s: float = 10.0) -> str:
        """Return what the debugger says next; empty: the actor goes on.

        Args:
            number: Of the breakpoint.
            limit_s: How long to wait for it.

        Raises:
            TimeoutError: It said nothing: it works, or its process is gone.
        """
        session = self._sessions.get(number)
        if session is None:
            return ""
        async with asyncio.timeout(limit_s):
            return await session.said.get()

    @concurrent_endpoint
    async def enter(self, process_id: str, actor: str, where: str) -> int:
        """An actor has come to a breakpoint."""
        number = next(self._numbers)
        self._sessions[number] = _Session(Breakpoint(number, process_id, actor, where))
        self._entered.set()
        return number

    @concurrent_endpoint
    async def ask(self, number: int) -> str | None:
        """Return the next line of input; None: there is none yet, ask again.

        Nobody waits here for long: the end of this actor would wait for them (P-5).
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ASK_AGAIN_S):
                return await self._sessions[number].lines.get()
        return None

    @concurrent_endpoint
    async def tell(self, number: int, text: str) -> None:
        """Take what the debugger says."""
        self._sessions[number].said.put_nowait(text)

    @concurrent_endpoint
    async def leave(self, number: int) -> None:
        """An actor goes on."""
        session = self._sessions.pop(number, None)
        if session is not None:
            session.said.put_nowait("")


def debug_controller() -> DebugController:
    """Return the job's one actor that knows who stands at a breakpoint, and talks to them."""
    return _outcome(get_or_spawn_controller("debug", DebugController))


class _Terminal(io.TextIOBase):
    """What the debugger reads from and writes to."""

    def __init__(self, controller: Any, number: int) -> None:
        self._controller, self._number = controller, number
        self._said: list[str] = []

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        self.flush()
        line = None
        while line is None:
            line = _outcome(self._controller.ask.call_one(self._number))
        return f"{line}\n"

    def write(self, text: str, /) -> int:
        self._said.append(text)
        return len(text)

    def flush(self) -> None:
        said, self._said = "".join(self._said), []
        if said:
            _outcome(self._controller.tell.call_one(self._number, said))


class _Debugger(pdb.Pdb):
    """Leaves its breakpoint when it is told to go on."""

    def __init__(self, controller: Any, number: int) -> None:
        terminal = _Terminal(controller, number)
        super().__init__(stdin=terminal, stdout=terminal, nosigint=True, readrc=False)  # type: ignore[arg-type]
        self._controller, self._number = controller, number

    def set_continue(self) -> None:
        super().set_continue()
        _outcome(self._controller.leave.call_one(self._number))


def break_here(*_: object, **__: object) -> None:
    """Stand at a breakpoint: what ``breakpoint()`` does in a worker."""
    frame = sys._getframe(2)  # of who called ``breakpoint()``
    controller: Any = debug_controller()
    me = context()
    number = _outcome(controller.enter.call_one(me.proc.process_id, _name(me), _where(frame)))
    _Debugger(controller, number).set_trace(frame)


def _name(me: Context) -> str:
    return f"{me.actor_name}[{me.point}]"


def _where(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _outcome(future: Future[T]) -> T:
    """Wait, wherever this is: the connections' loop, which brings the answer, goes on."""
    settled = threading.Event()
    future.add_done_callback(lambda _: settled.set())
    settled.wait()
    return future.get()
