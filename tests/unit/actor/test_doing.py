"""Futures of what goes on in the background, which ``asyncio.run`` takes for coroutines."""

from __future__ import annotations

import asyncio

import pytest

from danaus.actor.doing import Doing


@pytest.mark.parametrize("runs", [asyncio.run, asyncio.Runner().run], ids=["run", "runner"])
def test_what_is_done_already_can_be_run_awaited_and_asked(runs):
    done = Doing("it")
    done.set_value(3)
    assert runs(done) == 3
    assert done.get() == 3
    assert asyncio.run(awaited(done)) == 3


async def awaited(doing):
    return await doing


def test_a_loop_that_runs_it_waits_for_it():
    doing: Doing[int] = Doing("it")

    async def main():
        task = asyncio.create_task(doing)
        await asyncio.sleep(0)
        assert not task.done()
        doing.set_value(4)
        assert await asyncio.gather(task, doing) == [4, 4]

    asyncio.run(main())


def test_a_task_that_is_cancelled_gives_it_up_if_nobody_else_waits():
    given_up = []
    doing: Doing[int] = Doing("it", on_cancel=lambda: given_up.append(True))

    async def main():
        task = asyncio.create_task(doing)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert given_up


def test_an_error_comes_out_as_of_a_coroutine():
    doing: Doing[int] = Doing("it")
    doing.set_error(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        asyncio.run(doing)
    doing.close()
    never: Doing[int] = Doing("it")
    with pytest.raises(KeyError):
        never.throw(KeyError("thrown"))
    never.close()
