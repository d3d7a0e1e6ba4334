"""Breakpoints in actors: the debugger runs where the actor does, and is talked to from elsewhere.

Owns ``debug_controller`` and what ``breakpoint()`` does in a worker.  While an actor stands at a
breakpoint its thread waits; of an ``async`` endpoint that is the loop of all such actors there.
Between the two stands the host's agent (``agent_breakpoints``), which ``danaus debug`` asks too.
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
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

from danaus.actor import debug_messages as talk
from danaus.actor.agent_talk import AgentTalk, open_talk
from danaus.actor.controllers import get_or_spawn_controller
from danaus.actor.debug_looking import Door, attach, standing_at, wait_for_first
from danaus.actor.endpoints import Actor, concurrent_endpoint
from danaus.actor.process_runtime import context, get_runtime
from danaus.actor.runtime import Runtime
from danaus.core.errors import ChannelClosed, ConfigError, DanausError
from danaus.wire.address import Address

T = TypeVar("T")

_LOOK_AGAIN_S = 2.0  # hosts come and go
_FLUSH_CHARS = 16384
_AHEAD_BYTES = 1 << 20
_TAKEN_LIMIT_S = 60.0


# -- looking, inside the program -----------------------------------------------------------------


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


@dataclasses.dataclass
class _Looking:
    """Being attached to a breakpoint."""

    agent: AgentTalk
    unread: str


class DebugController(Actor):
    """Looks at the breakpoints of all hosts that this program works with."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._doors: dict[int, tuple[Door, int]] = {}
        self._looking: dict[int, _Looking] = {}
        self._attaching = asyncio.Lock()

    @concurrent_endpoint
    async def breakpoints(self, limit_s: float = 0.0) -> list[Breakpoint]:
        """Return who stands at a breakpoint.

        Args:
            limit_s: How long to wait for the first, should nobody stand at one now.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + limit_s
        while True:
            doors = await _on_io(get_runtime().connections.doors())
            seen = await asyncio.gather(*(_standing_at(door) for door in doors))
            found = [self._name(d, s) for d, each in zip(doors, seen, strict=True) for s in each]
            rest_s = until - loop.time()
            if found or rest_s <= 0:
                return found
            await wait_for_first(doors, min(rest_s, _LOOK_AGAIN_S))

    @concurrent_endpoint
    async def write(self, number: int, line: str) -> None:
        """Give the debugger at a breakpoint a line of input, as in ``next``.

        Raises:
            ConfigError: Nobody stands there, or somebody else is attached to it.
        """
        looking = await self._attach(number)
        looking.agent.say(talk.WriteToDebugger(self._doors[number][1], line))

    @concurrent_endpoint
    async def read(self, number: int, limit_s: float = 10.0) -> str:
        """Return what the debugger says next; empty: nobody stands there any more.

        Args:
            number: Of the breakpoint.
            limit_s: How long to wait for it.

        Raises:
            TimeoutError: It said nothing: it works.
            ConfigError: Somebody else is attached to it.
        """
        if number not in self._doors:
            return ""
        looking = await self._attach(number)
        async with asyncio.timeout(limit_s):
            while not looking.unread:
                told = await looking.agent.hear()
                if isinstance(told, talk.BreakpointOver):
                    await self._detach(number)
                    return ""
                looking.unread += told.text if isinstance(told, talk.DebuggerSaid) else ""
        text, looking.unread = looking.unread, ""
        return text

    async def __cleanup__(self, exc: BaseException | None) -> None:
        """Let go of every breakpoint: who stands there goes on standing."""
        for number in list(self._looking):
            await self._detach(number)

    def _name(self, door: Door, standing: talk.Standing) -> Breakpoint:
        key = (str(door[0]), standing.number)
        number = self._numbers.setdefault(key, len(self._numbers) + 1)
        self._doors.setdefault(number, (door, standing.number))
        return Breakpoint(number, standing.process_id, standing.actor, standing.where)

    async def _attach(self, number: int) -> _Looking:
        async with self._attaching:
            if number in self._looking:
                return self._looking[number]
            if number not in self._doors:
                raise ConfigError(f"nobody stands at breakpoint {number}")
            (address, secret), there = self._doors[number]
            async with contextlib.AsyncExitStack() as stack:
                agent = await open_talk(address, secret)
                stack.push_async_callback(agent.close)
                looking = _Looking(agent, (await attach(agent, there)).text)
                stack.pop_all()
            return self._looking.setdefault(number, looking)

    async def _detach(self, number: int) -> None:
        self._doors.pop(number, None)
        looking = self._looking.pop(number, None)
        if looking is not None:
            await looking.agent.close()


def debug_controller() -> DebugController:
    """Return the job's one actor that knows who stands at a breakpoint, and talks to them."""
    future = get_or_spawn_controller("debug", DebugController)
    settled = threading.Event()  # wherever this is: the loop that brings the answer goes on
    future.add_done_callback(lambda _: settled.set())
    settled.wait()
    return future.get()


async def _standing_at(door: Door) -> tuple[talk.Standing, ...]:
    """Return who stands at a breakpoint on a host; nobody, where its agent does not answer."""
    try:
        return await standing_at(door)
    except DanausError:
        return ()


async def _on_io(work: Coroutine[Any, Any, T]) -> T:
    """Await something on the connections' loop."""
    loop = get_runtime().io.loop
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


# -- standing there, in a worker ------------------------------------------------------------------


class _Terminal(io.TextIOBase):
    """What the debugger reads from and writes to: a session with the host's agent.

    Args:
        runtime: Of this process.
        who: The actor's name and place.
    """

    def __init__(self, runtime: Runtime, who: str) -> None:
        self._runtime, self._who = runtime, who
        self._agent: AgentTalk | None = None
        self._said: list[str] = []
        self.where = ""

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        return f"{self._run(self._ask())}\n"

    def write(self, text: str, /) -> int:
        self._said.append(text)
        if sum(map(len, self._said)) > _FLUSH_CHARS:
            self._run(self._tell(asks=False))
        return len(text)

    def flush(self) -> None:
        """Wait for more: most of what is written is followed by a question."""

    def leave(self) -> None:
        """The actor goes on."""
        if self._agent is not None:
            self._run(self._leave(self._agent))
            self._agent = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self._runtime.io.run(work, None)
        return result

    async def _ask(self) -> str:
        """Return the next line of input, as long as that may take: a person thinks."""
        while True:
            agent = await self._tell(asks=True)
            try:
                return (await agent.hear_of(talk.LineForDebugger)).line
            except ChannelClosed:
                self._agent = None  # with its agent this process ends; else it stands here again

    async def _tell(self, *, asks: bool) -> AgentTalk:
        agent = self._agent or await self._stand()
        said, self._said = "".join(self._said), []
        agent.say(talk.DebuggerSays(said, asks))
        await agent.taken(_TAKEN_LIMIT_S, _AHEAD_BYTES)
        return agent

    async def _stand(self) -> AgentTalk:
        info, connections = self._runtime.info, self._runtime.connections
        agent = await open_talk(
            Address.parse(info.agent_address), connections.secret_of(connections.ref().job)
        )
        agent.say(talk.StandAtBreakpoint(info.process_id, self._who, self.where))
        self._agent = agent
        return agent

    async def _leave(self, agent: AgentTalk) -> None:
        with contextlib.suppress(ChannelClosed):
            if self._said:
                await self._tell(asks=False)
            agent.say(talk.LeaveBreakpoint())
        await agent.close()


class _Debugger(pdb.Pdb):
    """Leaves its breakpoint when it is told to go on, to give up, or to step out of users' code."""

    def __init__(self, terminal: _Terminal) -> None:
        super().__init__(stdin=terminal, stdout=terminal, nosigint=True, readrc=False)  # type: ignore[arg-type]
        self._terminal = terminal
        self._first: FrameType | None = None  # of users' code, which ours has called

    def begin(self, frame: FrameType) -> None:
        """Stop in this frame, and be over once what we have called has returned to us."""
        frames = list(_outwards(frame))
        called = [each for each, by in itertools.pairwise(frames) if _is_ours(by)]
        self._first = called[0] if called else None
        self.set_trace(frame)

    def interaction(self, frame: FrameType | None, *traceback: Any) -> None:
        if frame is not None:
            self._terminal.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        super().interaction(frame, *traceback)

    def stop_here(self, frame: FrameType) -> bool:
        if self._first is not None and self._first not in _outwards(frame):
            self.set_continue()
            return False
        return super().stop_here(frame)

    def set_continue(self) -> None:
        super().set_continue()
        self._terminal.leave()

    def set_quit(self) -> None:
        super().set_quit()
        self._terminal.leave()


def break_here(*_: object, **__: object) -> None:
    """Stand at a breakpoint: what ``breakpoint()`` does in a worker."""
    me = context()
    terminal = _Terminal(get_runtime(), f"{me.actor_name}[{me.point}]")
    _Debugger(terminal).begin(sys._getframe(2))  # of who called ``breakpoint()``


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("danaus.")
