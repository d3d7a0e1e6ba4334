"""Whoever waits reads: threads and loops that take turns at one loop's connections."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading

import pytest
import uvloop
from tests.procs.wire.harness import Run
from tests.procs.wire.readers import LIMIT_S, Pipe, Thread, is_elsewhere, is_led, the_reading

from danaus.wire import reading as reading_module
from danaus.wire.reading import SharedReading, about_to_block, is_handling_here, soon_here


def test_a_thread_that_waits_reads_and_then_the_loop_does_again(run: Run) -> None:
    async def work() -> None:
        reading, here = the_reading(), threading.get_ident()
        arrived = asyncio.Event()
        pipe = Pipe(reading, lambda data: data == b"c" and arrived.set())
        leads = Thread(lambda: reading.lead(lambda: bool(pipe.taken), limit_s=LIMIT_S))
        await is_led(reading)
        pipe.put(b"a")
        await leads.done()
        assert pipe.taken == [(b"a", leads.ident)]
        pipe.put(b"c")
        await arrived.wait()
        assert pipe.taken[1:] == [(b"c", here)]
        pipe.close()
        reading.close()

    run(work())


def test_one_thread_leads_and_another_is_told_that_it_cannot(run: Run) -> None:
    async def work() -> None:
        reading, over = the_reading(), threading.Event()
        leads = Thread(lambda: reading.lead(over.is_set))
        await is_led(reading)
        await Thread(lambda: reading.lead(over.is_set)).done()
        assert not over.is_set()
        over.set()
        reading.ring()
        await leads.done()
        await Thread(lambda: reading.lead(lambda: False, limit_s=0.0)).done()
        reading.close()

    run(work())


def test_what_is_rung_before_a_thread_waits_is_not_lost(run: Run) -> None:
    async def work() -> None:
        reading = the_reading()
        for _ in range(200):
            over = threading.Event()
            leads = Thread(lambda over=over: reading.lead(over.is_set, limit_s=LIMIT_S))
            over.set()
            reading.ring()
            # It may have come before the loop had the reading back from the one before.
            await leads.done()
        reading.close()

    run(work())


def test_a_loop_is_given_the_reading_and_loses_it_when_it_is_busy(run: Run) -> None:
    async def work() -> None:
        reading, here, other = the_reading(), threading.get_ident(), uvloop.new_event_loop()
        arrived: asyncio.Queue[bytes] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        pipe = Pipe(reading, lambda data: loop.call_soon_threadsafe(arrived.put_nowait, data))
        thread, free = Thread(other.run_forever), threading.Event()
        other.call_soon_threadsafe(reading.follow, other)
        await is_elsewhere(reading)
        pipe.put(b"a")
        assert await arrived.get() == b"a"
        busy = asyncio.Event()

        def be_busy() -> None:
            reading.follow(other)
            loop.call_soon_threadsafe(busy.set)
            free.wait(LIMIT_S)

        other.call_soon_threadsafe(be_busy)
        await busy.wait()
        pipe.put(b"b")
        assert await arrived.get() == b"b"
        assert pipe.taken == [(b"a", thread.ident), (b"b", here)]
        free.set()
        other.call_soon_threadsafe(other.stop)
        await thread.done()
        pipe.close()
        reading.close()
        other.close()

    run(work())


def test_a_thread_takes_the_reading_from_a_loop_and_a_loop_from_one_that_is_idle(
    run: Run,
) -> None:
    async def work() -> None:
        reading, other = the_reading(), asyncio.new_event_loop()
        pipe, thread = Pipe(reading), Thread(other.run_forever)
        other.call_soon_threadsafe(reading.follow, other)
        await is_elsewhere(reading)
        leads = Thread(lambda: reading.lead_idly(lambda: len(pipe.taken) < 2))
        await is_led(reading)
        other.call_soon_threadsafe(reading.follow, other)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), other))
        pipe.put(b"a")
        await leads.done()  # it has had one, and the loop gets the next
        seen = threading.Event()
        pipe.then = lambda _: seen.set()
        pipe.put(b"b")
        await asyncio.get_running_loop().run_in_executor(None, seen.wait, LIMIT_S)
        assert pipe.taken == [(b"a", leads.ident), (b"b", thread.ident)]
        other.call_soon_threadsafe(other.stop)
        await thread.done()
        pipe.close()
        reading.close()
        other.close()

    run(work())


def follow_and_block(reading: SharedReading) -> None:
    """Be given the reading by a loop of this thread, which then waits for something else."""

    async def follow() -> None:
        reading.follow(asyncio.get_running_loop())

    asyncio.run(follow())
    about_to_block()


def test_a_thread_that_is_about_to_block_gives_back_what_its_loop_was_to_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_module, "LEASE_S", LIMIT_S)  # nobody takes it back

    async def work() -> None:
        reading, arrived = the_reading(), asyncio.Event()
        pipe = Pipe(reading, lambda _: arrived.set())
        await Thread(lambda: follow_and_block(reading)).done()
        pipe.put(b"a")
        await arrived.wait()
        assert pipe.taken == [(b"a", threading.get_ident())]
        pipe.close()
        reading.close()

    run(work())


def test_what_a_loop_is_to_do_soon_it_does_as_soon_as_it_has_read(run: Run) -> None:
    async def work() -> None:
        reading, loop, done = the_reading(), asyncio.get_running_loop(), asyncio.Event()
        order: list[str] = []

        def later(_: bytes) -> None:
            loop.call_soon(order.append, "in the next turn")
            loop.call_soon(done.set)
            soon_here(loop, lambda: order.append("handling" if is_handling_here() else "after"))
            order.append("read")

        pipe = Pipe(reading, later)
        pipe.put(b"a")
        await done.wait()
        assert order == ["read", "after", "in the next turn"]
        pipe.close()
        reading.close()

    run(work())


def test_a_handler_that_fails_is_the_loops_matter_not_the_readers(run: Run) -> None:
    async def work() -> None:
        reading, loop = the_reading(), asyncio.get_running_loop()
        told: asyncio.Queue[BaseException] = asyncio.Queue()
        loop.set_exception_handler(lambda _, facts: told.put_nowait(facts["exception"]))

        def fail(_: bytes) -> None:
            raise ZeroDivisionError("in a handler")

        pipe = Pipe(reading, fail)
        leads = Thread(lambda: reading.lead(lambda: bool(pipe.taken), limit_s=LIMIT_S))
        await is_led(reading)
        pipe.put(b"a")
        await leads.done()
        assert isinstance(await told.get(), ZeroDivisionError)
        assert not is_handling_here()
        pipe.close()
        reading.close()

    run(work())


def test_a_wait_within_a_wait_reads_too(run: Run) -> None:
    async def work() -> None:
        reading = the_reading()
        pipe = Pipe(reading)

        def is_over() -> bool:  # as code that the collector runs between two messages
            if not pipe.taken:
                reading.lead(lambda: bool(pipe.taken), limit_s=LIMIT_S)
            return len(pipe.taken) == 2

        leads = Thread(lambda: reading.lead(is_over, limit_s=LIMIT_S))
        await is_led(reading)
        pipe.put(b"a")
        pipe.put(b"b")
        await leads.done()
        assert {thread for _, thread in pipe.taken} == {leads.ident}
        pipe.close()
        reading.close()

    run(work())


def test_handlers_see_nothing_of_who_waits(run: Run) -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")

    async def work() -> None:
        reading, seen = the_reading(), []
        pipe = Pipe(reading, lambda _: seen.append(whose.get()))

        def program() -> None:
            whose.set("the thread's")
            reading.lead(lambda: bool(pipe.taken), limit_s=LIMIT_S)

        leads = Thread(program)
        await is_led(reading)
        pipe.put(b"a")
        await leads.done()

        async def follow() -> None:
            whose.set("the task's")
            reading.follow(asyncio.get_running_loop())
            pipe.put(b"b")
            async with asyncio.timeout(LIMIT_S):
                while len(seen) < 2:  # noqa: ASYNC110 - handlers wake nobody
                    await asyncio.sleep(0)

        await Thread(lambda: asyncio.run(follow())).done()
        assert seen == ["nobody's", "nobody's"]
        pipe.close()
        reading.close()

    run(work())


def test_after_a_handler_that_fails_the_loop_does_what_it_was_to_do(run: Run) -> None:
    async def work() -> None:
        reading, loop, done = the_reading(), asyncio.get_running_loop(), asyncio.Event()
        told: list[BaseException] = []
        loop.set_exception_handler(lambda _, facts: told.append(facts["exception"]))

        def fail(_: bytes) -> None:
            soon_here(loop, done.set)
            raise ZeroDivisionError("in a handler")

        pipe = Pipe(reading, fail)
        pipe.put(b"a")
        await done.wait()
        await asyncio.sleep(0)
        assert [type(each) for each in told] == [ZeroDivisionError]
        pipe.close()
        reading.close()

    run(work())


def test_no_limit_is_too_long(run: Run) -> None:
    async def work() -> None:
        reading = the_reading()
        pipe = Pipe(reading)
        limit_s = threading.TIMEOUT_MAX
        leads = Thread(lambda: reading.lead(lambda: bool(pipe.taken), limit_s=limit_s))
        await is_led(reading)
        pipe.put(b"a")
        await leads.done()
        pipe.close()
        reading.close()

    run(work())


def test_a_thread_that_is_about_to_block_gives_up_its_turn_too(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_module, "LEASE_S", LIMIT_S)

    async def work() -> None:
        reading, over, arrived = the_reading(), threading.Event(), asyncio.Event()
        pipe = Pipe(reading, lambda _: arrived.set())
        leads = Thread(lambda: reading.lead(over.is_set))
        await is_led(reading)
        await Thread(lambda: follow_and_block(reading)).done()  # it would read once nobody leads
        over.set()
        reading.ring()
        await leads.done()
        pipe.put(b"a")
        await arrived.wait()
        assert pipe.taken == [(b"a", threading.get_ident())]
        pipe.close()
        reading.close()

    run(work())


def test_once_a_connection_is_removed_nobody_is_within_its_handler(run: Run) -> None:
    async def work() -> None:
        reading = the_reading()
        inside, go_on, removed = threading.Event(), threading.Event(), threading.Event()

        def stay(_: bytes) -> None:
            inside.set()
            go_on.wait(LIMIT_S)
            assert not removed.is_set()

        pipe = Pipe(reading, stay)
        leads = Thread(lambda: reading.lead(lambda: bool(pipe.taken), limit_s=LIMIT_S))
        await is_led(reading)
        pipe.put(b"a")
        assert await asyncio.get_running_loop().run_in_executor(None, inside.wait, LIMIT_S)

        def remove() -> None:
            go_on.set()
            pipe.close()
            removed.set()

        await Thread(remove).done()
        await leads.done()
        reading.close()

    run(work())


def test_an_end_lets_the_thread_that_leads_go(run: Run) -> None:
    async def work() -> None:
        reading = the_reading()
        leads = Thread(lambda: reading.lead(lambda: False))
        await is_led(reading)
        reading.close()
        await leads.done()
        reading.lead(lambda: False)  # returns at once

    run(work())


def test_a_forked_child_leaves_its_parents_connections_alone(run: Run) -> None:
    async def work() -> None:
        reading, arrived = the_reading(), asyncio.Event()
        pipe = Pipe(reading, lambda _: arrived.set())
        child = os.fork()
        if not child:
            reading.lead(lambda: False)  # returns at once
            reading.ring()
            reading.give_back()
            os._exit(0)
        _, status = await asyncio.get_running_loop().run_in_executor(None, os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        pipe.put(b"a")
        await arrived.wait()
        pipe.close()
        reading.close()

    run(work())
