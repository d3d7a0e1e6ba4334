"""A person's terminal, attached to a debugger elsewhere: lines go there, what it says comes here.

Owns ``Keyboard`` and ``attend``.  Lines are read on a thread, with the editing and history of
readline where there is a terminal; so that what happens meanwhile, the death of the process that
stands there say, is told at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import queue
import sys
import termios
import threading
from types import TracebackType
from typing import Any, Self

from danaus.actor.agent_talk import AgentTalk
from danaus.actor.debug_looking import attach
from danaus.actor.debug_messages import BreakpointOver, DebuggerSaid, WriteToDebugger
from danaus.core.errors import ChannelClosed

_STDIN = 0


class Keyboard:
    """Standard input, line by line; leaves the terminal as it was.

    Attributes:
        is_over: Whether there is no more to come: a file's end, or Ctrl-D.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._wanted: queue.SimpleQueue[tuple[str, asyncio.Future[str | None]]]
        self._wanted = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(_STDIN)
            with contextlib.suppress(ImportError):
                importlib.import_module("readline")  # from now on input() edits lines
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._before is not None:  # a read that goes on has the terminal in a mode of its own
            with contextlib.suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._before)

    @property
    def is_terminal(self) -> bool:
        """Tell whether a person types."""
        return self._before is not None

    async def line(self, prompt: str) -> str | None:
        """Return the next line without its end; None: there is none to come."""
        if self._thread is None:
            # A daemon: nothing ends a read from a terminal.
            self._thread = threading.Thread(target=self._read, name="keyboard", daemon=True)
            self._thread.start()
        read: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._wanted.put((prompt, read))
        line = await read
        self.is_over = line is None
        return line

    def _read(self) -> None:
        while True:
            prompt, read = self._wanted.get()
            line = _typed(prompt) if self.is_terminal else _piped()
            with contextlib.suppress(RuntimeError):  # nobody waits any more
                read.get_loop().call_soon_threadsafe(_settle, read, line)


def _settle(read: asyncio.Future[str | None], line: str | None) -> None:
    if not read.done():
        read.set_result(line)


def _typed(prompt: str) -> str | None:
    try:
        return input(prompt)
    except (EOFError, OSError, UnicodeDecodeError):
        return None


def _piped() -> str | None:
    """Return a line, and take no byte behind it: whatever comes next is for others to read."""
    data = b""
    while not data.endswith(b"\n"):
        try:
            byte = os.read(_STDIN, 1)
        except OSError:
            byte = b""
        if not byte:
            return data.decode(errors="replace") if data else None
        data += byte
    return data[:-1].decode(errors="replace")


async def attend(agent: AgentTalk, number: int, *, take: bool, keyboard: Keyboard) -> str:
    """Be attached to a breakpoint until the actor goes on, or nothing more is typed.

    Args:
        agent: Of its host.
        number: Of the breakpoint there.
        take: Away from who is attached now.
        keyboard: What is typed.

    Returns:
        Why it came to a bad end; empty: it did not.

    Raises:
        ConfigError: Nobody stands there any more, or somebody else is attached to it.
    """
    first = await attach(agent, number, take=take)
    attended = _Attended(agent, number, keyboard)
    attended.show(first.text, asks=first.asks)
    try:
        return await attended.until_over()
    except ChannelClosed as closed:
        return f"its host agent has hung up: {closed.why}"


class _Attended:
    """A breakpoint that this terminal is attached to."""

    def __init__(self, agent: AgentTalk, number: int, keyboard: Keyboard) -> None:
        self._agent, self._number, self._keyboard = agent, number, keyboard
        self._prompt, self._asks = "", False

    def show(self, text: str, *, asks: bool) -> None:
        """Print what was said; what a line is asked for with is left to who reads it."""
        self._asks = asks
        at_end = asks and self._keyboard.is_terminal
        self._prompt = text.rpartition("\n")[2] if at_end else ""
        print(text.removesuffix(self._prompt), end="", flush=True)

    async def until_over(self) -> str:
        """Pass on what is said and typed; return why it came to a bad end, if it did."""
        heard = asyncio.ensure_future(self._agent.hear())
        typed: asyncio.Future[str | None] | None = None
        try:
            while True:
                if self._asks and typed is None:
                    typed = asyncio.ensure_future(self._keyboard.line(self._prompt))
                both = [each for each in (heard, typed) if each is not None]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if heard.done():
                    told = heard.result()
                    if isinstance(told, BreakpointOver):
                        return told.why
                    if isinstance(told, DebuggerSaid):
                        self.show(told.text, asks=told.asks)
                    heard = asyncio.ensure_future(self._agent.hear())
                elif typed is not None:
                    if not self._pass_on(typed.result()):
                        return ""
                    typed = None
        finally:
            for each in (heard, typed):
                if each is not None:
                    each.cancel()

    def _pass_on(self, line: str | None) -> bool:
        self._asks = False
        if line is not None:
            self._agent.say(WriteToDebugger(self._number, line))
        return line is not None
