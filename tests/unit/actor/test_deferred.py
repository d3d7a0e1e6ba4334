"""Async functions that return futures: where they run, and what whoever asks hears (A-4)."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading

import pytest

from danaus.actor import returns_future, wait_all
from danaus.core.errors import DeadlinePassed

LIMIT_S = 10.0
WHO = contextvars.ContextVar("who", default="nobody")


class Counted:
    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []

    @returns_future
    async def add(self, a: int, b: int) -> int:
        self.begun.append((threading.get_ident(), WHO.get()))
        await asyncio.sleep(0)
        return a + b

    @returns_future
    async def fail(self) -> int:
        raise ValueError("no")

    @returns_future
    async def stay(self, ended: list[str]) -> int:
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")


@pytest.fixture
def counted():
    return Counted()


def test_a_plain_caller_runs_the_body_on_its_own_thread_once(counted):
    WHO.set("caller")
    future = counted.add(1, 2)
    WHO.set("somebody else")
    assert counted.begun == []
    assert future.get(LIMIT_S) == future.result() == 3
    assert counted.begun == [(threading.get_ident(), "caller")]
    assert future.exception() is None
    assert asyncio.run(awaited(future)) == 3


async def awaited(future):
    return await future


def test_whoever_awaits_it_runs_it_on_its_loop(counted):
    async def main():
        loop = asyncio.get_running_loop()
        future = counted.add(1, 2)
        assert await asyncio.gather(awaited(future), future, future.as_asyncio()) == [3, 3, 3]
        assert await counted.add(3, 4).as_asyncio() == 7
        await counted.add(5, 6).wait()
        assert counted.add(7, 8).get(LIMIT_S) == 15  # it has a thread of its own then
        return loop

    asyncio.run(main())
    mine = threading.get_ident()
    assert [thread == mine for thread, _ in counted.begun] == [True, True, True, False]


def test_who_waits_for_several_has_them_run(counted):
    futures = [counted.add(k, k) for k in range(3)]
    assert wait_all(futures).get(LIMIT_S) == [0, 2, 4]


def test_an_error_comes_to_everyone(counted):
    future = counted.fail()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            future.get(LIMIT_S)
    assert isinstance(counted.fail().exception(LIMIT_S), ValueError)
    with pytest.raises(ValueError, match="no"):
        asyncio.run(awaited(counted.fail()))


def test_whoever_runs_it_ends_it_by_its_limit_or_its_own_cancelling(counted):
    ended: list[str] = []
    future = counted.stay(ended)
    for _ in range(2):
        with pytest.raises(DeadlinePassed):
            future.get(timeout=0.01)

    async def main():
        waiting = asyncio.create_task(awaited(counted.stay(ended)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert ended == ["cancelled", "cancelled"]


def test_what_nobody_asks_for_never_begins(counted):
    counted.add(1, 2)
    given_up = counted.add(1, 2)
    assert given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        given_up.get()
    gc.collect()
    assert counted.begun == []


def test_a_function_that_is_not_async_is_refused():
    with pytest.raises(TypeError, match="is no async function"):
        returns_future(lambda: 1)
