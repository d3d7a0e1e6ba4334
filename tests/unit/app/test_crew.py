"""When a run is over: who is waited for."""

import asyncio

from danaus.app.crew import first_at_the_end
from danaus.app.run_result import WorkerResult

LATE, ENDED, STOPPED = (WorkerResult(0, "a"),), (WorkerResult(9, "b"),), ()


async def settle():
    """Let the loop turn until whatever can go on has done so."""
    loop = asyncio.get_running_loop()
    for _ in range(10):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


def waited_for(*results):
    """Return how many replicas had to be done, one after the other, until the run was over."""

    async def count():
        loop = asyncio.get_running_loop()
        answers = [loop.create_future() for _ in results]

        async def each(answer):
            return await answer

        async with asyncio.TaskGroup() as tasks:
            keepers = [tasks.create_task(each(answer)) for answer in answers]
            stopped = tasks.create_task(asyncio.Event().wait())
            over = tasks.create_task(
                first_at_the_end(keepers, stopped, grown=asyncio.Event(), num_steps=9)
            )
            done = 0
            for answer, result in zip(answers, results, strict=True):
                answer.set_result(result)
                done += 1
                await settle()
                if over.done():
                    break
            for answer in answers[done:]:
                answer.cancel()
            stopped.cancel()
        return done

    return asyncio.run(count())


def test_whoever_came_too_late_for_the_last_step_ends_no_run():
    assert waited_for(LATE, ENDED, LATE) == 2
    assert waited_for(ENDED, LATE) == 1


def test_once_nobody_is_left_the_run_is_over():
    assert waited_for(LATE, STOPPED) == 2
