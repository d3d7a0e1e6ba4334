"""The actor of a soak: it talks to the others of its mesh in every way, and keeps a log."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import xxhash

from danaus.actor.endpoints import Actor, concurrent_endpoint, endpoint
from danaus.actor.future import Future
from danaus.actor.process_runtime import context, current_rank
from danaus.actor.replies import Replies
from danaus.app.soak_log import ANYONE, END, Letter, Life, line
from danaus.core.errors import DanausError, InternalError

_MOST_OPEN = 16
_CASTS_BETWEEN_CALLS = 32  # nobody waits for a cast: without a call now and then they would pile up
_SIZES = (0, 0, 0, 40, 4_000)
_LARGE_BYTES = 300_000
_WAYS = ("call", "call_one", "broadcast", "broadcast", "choose", "stream")
Numbers = dict[int, int]


class Talker(Actor):
    """Talks, listens, and writes both down.

    Args:
        folder: Where each life has its log.
    """

    def __init__(self, folder: Path) -> None:
        self._me = Life(current_rank().rank, context().proc.incarnation)
        path = folder / f"{self._me.rank}.{self._me.incarnation}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._log = os.open(path, flags, 0o600)
        self._numbers: Counter[int] = Counter()
        self._open = asyncio.Semaphore(_MOST_OPEN)

    # -- listening ------------------------------------------------------------------------------

    @endpoint
    def take(self, sender: tuple[int, int], numbers: Numbers, *, load: bytes, checksum: int) -> int:
        """Get a letter; return the rank that got it.

        Args:
            sender: A ``Life``.
            numbers: That of each receiver, or of ``ANYONE``.
            load: Bytes to carry.
            checksum: Of them.

        Raises:
            InternalError: They are not what was sent.
        """
        if xxhash.xxh3_64_intdigest(load) != checksum:
            raise InternalError("W-3", f"a load of {len(load)} bytes arrived damaged")
        to = ANYONE if ANYONE in numbers else self._me.rank
        self._write("got", Letter(Life(*sender), to, numbers[to]))
        return self._me.rank

    @concurrent_endpoint
    async def pid(self) -> int:
        """Return the process that this life lives in."""
        return os.getpid()

    @concurrent_endpoint
    async def cut(self) -> int:
        """Cut every connection of this process, as a network would; return how many there were."""
        return sum(map(_cut, list(_descriptors())))

    # -- talking --------------------------------------------------------------------------------

    @concurrent_endpoint
    async def talk(self, others: Talker, seed: int, seconds: float) -> int:
        """Talk for so long and wait for every answer; return how many letters were sent."""
        chance = random.Random(f"{seed} {self._me}")
        until = time.monotonic() + seconds
        num_casts = 0
        async with asyncio.TaskGroup() as answers:
            while time.monotonic() < until:
                await self._open.acquire()
                answer = self._send(others, chance)
                if answer is not None:
                    answers.create_task(self._closing(answer))
                    continue
                self._open.release()
                num_casts += 1
                if num_casts % _CASTS_BETWEEN_CALLS == 0:
                    await self._call(others, range(others.size()), b"")
        await self._call(others, range(others.size()), b"")  # nothing of before is under way then
        os.write(self._log, END)
        return self._numbers.total()

    async def _closing(self, answer: Coroutine[Any, Any, None]) -> None:
        try:
            await answer
        finally:
            self._open.release()

    def _send(self, others: Talker, chance: random.Random) -> Coroutine[Any, Any, None] | None:
        """Send one message; return what waits for its answers, None if nobody does."""
        way = chance.choice(_WAYS)
        size = chance.choice(_SIZES if way == "broadcast" else (*_SIZES, _LARGE_BYTES))
        load = chance.randbytes(size)
        first = chance.randrange(others.size())
        last = first + 1 if way == "call_one" else chance.randint(first + 1, others.size())
        part = others.slice(p=slice(first, last))
        match way:
            case "broadcast":
                letters = self._letters("cast", range(first, last))
                part.take.broadcast(**self._content(letters, load))
                return None
            case "choose":
                letters = self._letters("call", [ANYONE])
                return self._one(letters[0], others.take.choose(**self._content(letters, load)))
            case "call_one":
                letters = self._letters("call", [first])
                return self._one(letters[0], part.take.call_one(**self._content(letters, load)))
            case "stream":
                letters = self._letters("call", range(first, last))
                return self._each(letters, part.take.stream(**self._content(letters, load)))
        return self._call(part, range(first, last), load)

    def _call(self, part: Talker, ranks: range, load: bytes) -> Coroutine[Any, Any, None]:
        letters = self._letters("call", ranks)
        future = part.take.settled(**self._content(letters, load))

        async def wait() -> None:
            for letter, outcome in zip(letters, (await future).values(), strict=True):
                self._write("answer" if outcome.ok else "error", letter)

        return wait()

    async def _one(self, letter: Letter, future: Future[int]) -> None:
        try:
            await future
        except DanausError:
            self._write("error", letter)
        else:
            self._write("answer", letter)

    async def _each(self, letters: list[Letter], replies: Replies[int]) -> None:
        left = {letter.to: letter for letter in letters}
        async for reply in replies:
            if reply.exception() is None:
                self._write("answer", left.pop(reply.get()))
        for letter in left.values():  # each reply that is an error is one of these
            self._write("error", letter)

    def _letters(self, what: str, receivers: Sequence[int]) -> list[Letter]:
        """Write down what is about to be sent."""
        letters = []
        for to in receivers:
            self._numbers[to] += 1
            letters.append(Letter(self._me, to, self._numbers[to]))
            self._write(what, letters[-1])
        return letters

    def _content(self, letters: list[Letter], load: bytes) -> dict[str, Any]:
        return {
            "sender": (self._me.rank, self._me.incarnation),
            "numbers": {letter.to: letter.number for letter in letters},
            "load": load,
            "checksum": xxhash.xxh3_64_intdigest(load),
        }

    def _write(self, what: str, letter: Letter) -> None:
        os.write(self._log, line(what, letter))


def _descriptors() -> Iterator[int]:
    return (int(each) for each in os.listdir("/proc/self/fd"))


def _cut(descriptor: int) -> bool:
    """Cut a descriptor if it is a connection; tell whether it was.

    Pairs without a name are not: they end with their process only, and say that it has ended.
    """
    try:
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False  # no socket, or closed meanwhile
    with copy:
        try:
            if not (copy.getpeername() or copy.getsockname()):
                return False
            copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False  # it listens, or has ended
    return True
