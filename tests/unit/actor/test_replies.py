"""Waiting for several futures, and for each as it comes."""

from __future__ import annotations

import asyncio

import pytest

from danaus.actor.future import Future
from danaus.actor.replies import Replies, wait_all


def test_wait_all_has_the_values_in_the_order_of_the_futures():
    one, two = Future[int]("one"), Future[int]("two")
    both = wait_all([one, two])
    two.set_value(2)
    assert not both.done()
    one.set_value(1)
    assert both.get(1.0) == [1, 2]
    assert wait_all([]).get(1.0) == []


def test_wait_all_raises_every_error_once_all_are_settled():
    futures = [Future[int](str(k)) for k in range(3)]
    together = wait_all(futures)
    futures[0].set_error(ValueError("no"))
    assert not together.done()
    futures[1].set_value(1)
    futures[2].set_error(KeyError("x"))
    with pytest.raises(ExceptionGroup, match="2 of 3 futures failed") as caught:
        together.get(1.0)
    assert [type(each) for each in caught.value.exceptions] == [ValueError, KeyError]


def test_wait_all_cancels_all():
    futures = [Future[int](str(k)) for k in range(2)]
    wait_all(futures).cancel()
    assert all(future.done() for future in futures)


def test_replies_are_awaited_in_turn_and_errors_do_not_end_them():
    async def collect():
        futures = [Future[int](str(k)) for k in range(3)]
        loop = asyncio.get_running_loop()
        loop.call_soon(futures[0].set_value, 0)
        loop.call_soon(futures[1].set_error, ValueError("no"))
        loop.call_soon(futures[2].set_value, 2)
        return [reply.exception() or reply.get() async for reply in Replies(futures)]

    first, error, last = asyncio.run(collect())
    assert (first, last) == (0, 2)
    assert isinstance(error, ValueError)
