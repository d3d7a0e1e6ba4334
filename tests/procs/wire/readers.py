"""Something to read on a loop, and threads that take part in it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

from danaus.wire.reading import SharedReading, is_handling_here, shared_reading

LIMIT_S = 20.0


class Pipe:
    """Something to read, and what was read, by whom."""

    def __init__(self, reading: SharedReading, then: Callable[[bytes], object] | None = None):
        self.reading = reading
        self.then = then
        self.out, self.into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.taken: list[tuple[bytes, int]] = []
        reading.add(self.out, self.readable)

    def readable(self) -> None:
        assert is_handling_here()
        try:
            data = os.read(self.out, 1)
        except BlockingIOError:  # another has just taken it
            return
        self.taken.append((data, threading.get_ident()))
        if self.then is not None:
            self.then(data)

    def put(self, data: bytes) -> None:
        os.write(self.into, data)

    def close(self) -> None:
        self.reading.remove(self.out)
        os.close(self.out)
        os.close(self.into)


class Thread(threading.Thread):
    """A thread whose result, or error, is the joiner's."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.work, self.result, self.error = work, None, None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error

    async def done(self) -> Any:
        await asyncio.get_running_loop().run_in_executor(None, self.join, LIMIT_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def the_reading() -> SharedReading:
    found = shared_reading()
    assert found is not None
    return found


async def is_led(reading: SharedReading) -> None:
    """Wait until a thread leads."""
    await turns_until(lambda: bool(reading._leader) and reading._at is None)


async def is_elsewhere(reading: SharedReading) -> None:
    """Wait until another loop is to read."""
    await turns_until(lambda: reading._at not in (None, reading._home))


async def turns_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - what it looks at tells nobody
            await asyncio.sleep(0)
