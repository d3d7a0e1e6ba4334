"""What other threads have a loop do: in order, and none is forgotten."""

from __future__ import annotations

import asyncio
import threading

from danaus.actor.handover import handover_to


def test_what_is_handed_over_together_is_called_in_one_turn_and_in_order():
    async def run():
        handover, called = handover_to(asyncio.get_running_loop()), []
        for number in range(3):
            handover.post(lambda number=number: called.append((number, handover.turn)))
        await asyncio.sleep(0)
        assert called == [(0, 1), (1, 1), (2, 1)]

    asyncio.run(run())


def test_what_follows_on_one_that_raises_is_called_all_the_same():
    async def run():
        loop, told, called = asyncio.get_running_loop(), [], []
        loop.set_exception_handler(lambda _, facts: told.append(facts["exception"]))
        handover = handover_to(loop)
        handover.post(lambda: 1 // 0)
        handover.post(lambda: called.append(True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert called == [True]
        assert [type(each) for each in told] == [ZeroDivisionError]

    asyncio.run(run())


def test_of_what_many_threads_hand_over_nothing_is_left():
    async def run():
        handover, count, done = handover_to(asyncio.get_running_loop()), [0], asyncio.Event()

        def one_more():
            count[0] += 1
            if count[0] == 4 * 2000:
                done.set()

        def post_many():
            for _ in range(2000):
                handover.post(one_more)

        threads = [threading.Thread(target=post_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(20):
            await done.wait()
        for thread in threads:
            thread.join()

    asyncio.run(run())


def test_each_loop_has_one_of_its_own():
    async def found():
        return handover_to(asyncio.get_running_loop())

    async def twice():
        assert await found() is await found()

    asyncio.run(twice())
    assert asyncio.run(found()) is not asyncio.run(found())
