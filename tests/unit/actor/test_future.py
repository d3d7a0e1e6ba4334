"""Futures: settled once, waited for from threads and loops, more than once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from danaus.actor.future import Future, forbid_blocking
from danaus.core.errors import DeadlinePassed


def test_the_first_to_settle_counts():
    future = Future[int]("a number")
    assert future.set_value(1)
    assert not future.set_value(2)
    assert not future.set_error(ValueError())
    assert future.get() == future.result() == 1
    assert future.exception() is None


def test_waiting_ends_with_the_limit_and_the_future_goes_on():
    future = Future[int]("a number")
    with pytest.raises(DeadlinePassed, match=r"waited 0\.0 s for a number"):
        future.get(timeout=0.01)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0.0)
    future.set_value(3)
    assert future.get(timeout=0.0) == 3


def test_a_thread_that_waits_is_woken():
    future, got = Future[int](), []
    waiter = threading.Thread(target=lambda: got.append(future.get(timeout=5.0)))
    waiter.start()
    future.set_value(4)
    waiter.join()
    assert got == [4]


def test_it_can_be_awaited_more_than_once_and_from_another_loop():
    async def both(future):
        return await future, await asyncio.gather(future.as_asyncio(), future.as_asyncio())

    future = Future[int]()
    timer = threading.Timer(0.0, lambda: future.set_value(5))
    timer.start()
    assert asyncio.run(both(future)) == (5, [5, 5])
    assert asyncio.run(both(future)) == (5, [5, 5])
    timer.join()


def test_errors_come_out_of_every_door():
    future = Future[int]()
    future.set_error(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        future.get()

    async def wait():
        await future

    with pytest.raises(ValueError, match="no"):
        asyncio.run(wait())


def test_cancelling_the_waiting_task_cancels_the_call():
    cancelled = []
    future = Future[int]("a call", on_cancel=lambda: cancelled.append(True))

    async def run():
        task = asyncio.ensure_future(future.as_asyncio())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert cancelled == [True]
    assert not future.cancel()


def test_values_are_opened_by_who_asks_first_and_once():
    opened = []

    def decode(raw):
        opened.append(threading.get_ident())
        return raw * 2

    future = Future[int](decode=decode)
    future.set_value(21)
    assert opened == []
    assert [future.get(), future.get()] == [42, 42]
    assert opened == [threading.get_ident()]


def test_a_value_that_cannot_be_opened_is_an_error():
    future = Future[int](decode=lambda raw: 1 // raw)
    future.set_value(0)
    with pytest.raises(ZeroDivisionError):
        future.get()
    assert isinstance(future.exception(), ZeroDivisionError)


def test_waiting_on_the_thread_that_brings_the_answer_is_refused():
    future = Future[int]("a call")
    forbid_blocking(threading.get_ident(), True)
    try:
        with pytest.raises(RuntimeError, match="await it instead"):
            future.get()
        future.set_value(1)
        assert future.get() == 1
    finally:
        forbid_blocking(threading.get_ident(), False)


def test_a_call_is_given_up_once_nobody_waits_for_it_any_more():
    given_up = []

    async def run():
        future = Future[int]("a call", on_cancel=lambda: given_up.append(True))
        first, second = future.as_asyncio(), future.as_asyncio()
        first.cancel()
        await asyncio.wait([first])
        assert not given_up
        second.cancel()
        await asyncio.wait([second])
        assert given_up == [True]

    asyncio.run(run())


def test_a_task_goes_on_in_the_turn_that_hears_of_the_answer():
    async def run():
        future, order = Future[int](), []

        async def wait():
            order.append(await future)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        future.set_value(1)
        asyncio.get_running_loop().call_soon(order.append, "later")
        await task
        await asyncio.sleep(0)
        assert order == [1, "later"]

    asyncio.run(run())


def test_a_task_that_is_cancelled_while_it_awaits_gives_the_call_up_unless_another_waits():
    given_up = []

    async def run():
        future = Future[int]("a call", on_cancel=lambda: given_up.append(True))

        async def wait():
            return await future

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        assert not given_up
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await second
        assert second.cancelled()
        assert given_up == [True]
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(run())


def test_an_answer_that_comes_after_the_task_was_cancelled_changes_nothing():
    async def run():
        future = Future[int]("a call")

        async def wait():
            try:
                await future
            except asyncio.CancelledError:
                return await future
            raise AssertionError("it was not cancelled")

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        future.set_value(1)
        task.cancel()
        assert await task == 1

    asyncio.run(run())


def test_a_thread_that_waits_keeps_a_call_from_being_given_up():
    future, got = Future[int]("a call"), []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        got.append(future.get(timeout=5.0))

    async def give_up():
        mirror = future.as_asyncio()
        while future._num_waiting < 2:  # noqa: ASYNC110  # nothing else tells of it
            await asyncio.sleep(0)
        mirror.cancel()
        await asyncio.wait([mirror])

    waiter = threading.Thread(target=wait)
    waiter.start()
    begun.wait(5.0)
    asyncio.run(give_up())
    future.set_value(3)
    waiter.join()
    assert got == [3]


def test_waiting_for_the_end_tells_nothing_of_how_it_ended():
    async def run():
        future = Future[int]("a call")
        asyncio.get_running_loop().call_soon(future.set_error, ValueError("no"))
        await future.wait()
        await future.wait()
        assert isinstance(future.exception(), ValueError)

    asyncio.run(run())


def test_a_callback_that_raises_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    future, called = Future[int]("a number"), list[int]()

    def fail(_: Future[int]) -> None:
        raise ValueError("as it should not")

    future.add_done_callback(fail)
    future.add_done_callback(lambda settled: called.append(settled.get()))
    assert future.set_value(7)
    assert called == [7]
    assert "a number: a callback of it raised" in caplog.text
    assert "as it should not" in caplog.text
