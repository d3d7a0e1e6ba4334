"""Signals on a thread that reads: never in the middle of a message."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from tests.procs.wire.harness import Run
from tests.procs.wire.readers import LIMIT_S, Pipe, Thread, is_elsewhere, the_reading

from danaus.wire.reading import SharedReading


def test_the_main_thread_does_not_read_where_another_signal_could_interrupt_it(
    run: Run,
) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:

        async def work() -> None:
            reading = the_reading()
            reading.lead(lambda: False)  # returns at once
            asyncio_loop = asyncio.new_event_loop()
            asyncio_loop.call_soon(reading.follow, asyncio_loop)
            asyncio_loop.call_soon(asyncio_loop.stop)
            await Thread(asyncio_loop.run_forever).done()
            await is_elsewhere(reading)  # of another thread a loop may
            reading.close()
            asyncio_loop.close()

        run(work())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_is_raised_between_messages_and_never_within_one() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop, made = asyncio.new_event_loop(), threading.Event()
    main, handled = threading.get_ident(), [0]
    parts: list[Any] = []

    def in_the_middle(data: bytes) -> None:
        if threading.get_ident() == main:
            os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # the interpreter looks for signals many times
            handled[0] += 1

    async def begin() -> None:
        reading = the_reading()
        parts.extend((reading, Pipe(reading, in_the_middle)))
        made.set()

    loop.call_soon(lambda: loop.create_task(begin()))
    thread = Thread(loop.run_forever)
    try:
        assert made.wait(LIMIT_S)
        reading, pipe = parts
        with pytest.raises(KeyboardInterrupt):
            read_until_interrupted(reading, pipe)
        assert handled[0]
        assert handled[0] % 1000 == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        for last in (pipe.close, reading.close, loop.stop):
            loop.call_soon_threadsafe(last)
        thread.join(LIMIT_S)
        loop.close()
        signal.signal(signal.SIGINT, before)


class Interrupted:
    """An epoll that is interrupted in the middle of what is done to it."""

    def __init__(self, epoll: Any) -> None:
        self.epoll = epoll

    def unregister(self, fd: Any) -> None:
        self.epoll.unregister(fd)
        os.kill(os.getpid(), signal.SIGINT)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.epoll, name)


def test_an_interrupt_while_the_reading_changes_hands_leaves_it_with_somebody() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop, mine = asyncio.new_event_loop(), asyncio.new_event_loop()
    thread = Thread(loop.run_forever)

    async def make() -> tuple[SharedReading, Pipe]:
        reading = the_reading()
        return reading, Pipe(reading)

    async def follow() -> None:
        reading.follow(asyncio.get_running_loop())

    reading, pipe = asyncio.run_coroutine_threadsafe(make(), loop).result(LIMIT_S)
    try:
        mine.run_until_complete(follow())
        assert reading._at is not None
        reading._at.epoll = Interrupted(reading._at.epoll)
        with pytest.raises(KeyboardInterrupt):
            reading.give_back()
        pipe.put(b"a")
        asyncio.run_coroutine_threadsafe(has_taken(pipe), loop).result(LIMIT_S)
        assert pipe.taken == [(b"a", thread.ident)]
    finally:
        for last in (pipe.close, reading.close, loop.stop):
            loop.call_soon_threadsafe(last)
        thread.join(LIMIT_S)
        mine.run_until_complete(asyncio.sleep(0))  # it is told that it reads no more
        for each in (loop, mine):
            each.close()
        signal.signal(signal.SIGINT, before)


async def has_taken(pipe: Pipe) -> None:
    """Wait until it was read."""
    async with asyncio.timeout(LIMIT_S):
        while not pipe.taken:  # noqa: ASYNC110 - handlers wake nobody
            await asyncio.sleep(0)


def read_until_interrupted(reading: SharedReading, pipe: Pipe) -> None:
    """Read on this thread; the connections' loop may be faster, and is not interrupted."""
    for _ in range(1000):
        num = len(pipe.taken)
        pipe.put(b"a")
        while len(pipe.taken) == num:
            reading.lead(lambda num=num: len(pipe.taken) > num, limit_s=0.1)
