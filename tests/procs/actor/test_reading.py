"""Whoever waits for an answer reads it, and nobody else comes to wait for that."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from danaus.actor import Actor, Future, concurrent_endpoint, endpoint, shutdown_context, this_host

LIMIT_S = 30.0
_whose: contextvars.ContextVar[str] = contextvars.ContextVar("_whose", default="nobody's")
_told = threading.Event()  # of one process


@pytest.fixture
def pair():
    procs = this_host().spawn_procs(per_host={"gpus": 2})
    yield procs.spawn("pair", Both), procs.spawn("others", Both)
    shutdown_context().get(LIMIT_S)


class Both(Actor):
    """Has endpoints of either kind."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.gate = asyncio.Event()

    @endpoint
    def plain(self, value: int) -> int:
        self.seen.append(value)
        return value

    @endpoint
    async def on_loop(self, value: int) -> int:
        self.seen.append(value)
        return value

    @endpoint
    def take_seen(self) -> list[int]:
        seen, self.seen = self.seen, []
        return seen

    @endpoint
    async def block_the_loop(self) -> bool:
        return _told.wait(LIMIT_S)  # as nobody should

    @endpoint
    def block(self) -> bool:
        return _told.wait(LIMIT_S)

    @endpoint
    def tell(self) -> None:
        _told.set()

    @endpoint
    def forget(self) -> None:
        _told.clear()

    @endpoint
    def fail(self) -> None:
        raise ValueError("as it was asked to")

    @endpoint
    async def calls(self, other: Both, num: int) -> int:
        return sum([await other.on_loop.call_one(number) for number in range(num)])

    @endpoint
    def gets(self, other: Both, num: int) -> int:
        return sum(other.plain.call_one(number).get(LIMIT_S) for number in range(num))

    @endpoint
    def set_whose(self, whose: str) -> None:
        _whose.set(whose)

    @endpoint
    async def see_whose(self) -> str:
        return _whose.get()

    @concurrent_endpoint
    async def wait(self) -> None:
        await self.gate.wait()

    @concurrent_endpoint
    async def open_gate(self) -> None:
        self.gate.set()


def test_every_way_of_waiting_in_turns(pair) -> None:
    actors, others = pair
    one, other = actors.slice(gpus=0), others.slice(gpus=1)

    async def on_a_loop(start: int) -> int:
        total = 0
        for value in range(start, start + 30):
            total += await one.on_loop.call_one(value)
            total += await one.plain.call_one(value)
            total += sum((await actors.plain.call(value)).values())
        return total

    total = 0
    for start in range(0, 300, 30):
        total += asyncio.run(on_a_loop(start))
        total += one.plain.call_one(start).get(LIMIT_S)
        total += one.on_loop.call_one(start).get(LIMIT_S)
        total += sum(actors.on_loop.call(start).get(LIMIT_S).values())
        total += one.calls.call_one(other, 10).get(LIMIT_S)
        total += one.gets.call_one(other, 10).get(LIMIT_S)
    assert total == 4 * sum(range(300)) + 4 * sum(range(0, 300, 30)) + 10 * 2 * 45


def test_messages_of_many_threads_and_a_loop_stay_in_order(pair) -> None:
    actors, _ = pair
    one = actors.slice(gpus=0)
    errors: list[BaseException] = []

    def thread() -> None:
        try:
            for value in range(200):
                assert one.plain.call_one(value).get(LIMIT_S) == value
        except BaseException as error:
            errors.append(error)

    async def loop() -> None:
        for value in range(200):
            assert await one.on_loop.call_one(value) == value

    threads = [threading.Thread(target=thread) for _ in range(3)]
    for each in threads:
        each.start()
    asyncio.run(loop())
    for each in threads:
        each.join(LIMIT_S)
    assert not errors
    seen = one.take_seen.call_one().get(LIMIT_S)
    assert sorted(seen) == sorted(list(range(200)) * 4)


def test_a_loop_that_blocks_keeps_nobody_from_an_answer(pair) -> None:
    actors, _ = pair
    one = actors.slice(gpus=0)
    answered = threading.Event()

    def thread() -> None:
        values = actors.plain.call(1).get(LIMIT_S)  # gathered: not by the thread that waits
        assert list(values.values()) == [1, 1]
        answered.set()

    async def program() -> bool:
        for value in range(20):
            await one.on_loop.call_one(value)
        other = threading.Thread(target=thread)
        other.start()
        done = answered.wait(LIMIT_S)  # as nobody should in a coroutine
        other.join(LIMIT_S)
        return done

    assert asyncio.run(program())


@pytest.mark.parametrize("how", ["block_the_loop", "block"])
def test_an_endpoint_that_blocks_keeps_nobody_else_in_its_process_from_his_messages(
    pair, how: str
) -> None:
    one, other = (each.slice(gpus=0) for each in pair)
    one.forget.call_one().get(LIMIT_S)
    for value in range(20):
        one.on_loop.call_one(value).get(LIMIT_S)
    blocked = getattr(one, how).call_one()
    other.tell.call_one().get(LIMIT_S)
    assert blocked.get(LIMIT_S) is True


def test_what_an_actor_sets_in_its_context_no_other_sees_whoever_reads_its_messages(pair) -> None:
    one, other = (each.slice(gpus=0) for each in pair)
    for _ in range(5):
        one.set_whose.call_one("one's").get(LIMIT_S)  # then it reads, until the other's come
        assert other.see_whose.call_one().get(LIMIT_S) == "nobody's"


def test_a_callback_that_would_block_whoever_reads_is_refused(pair) -> None:
    one = pair[0].slice(gpus=0)
    gathered = pair[1].wait.call()
    told: list[str] = []

    def blocks(_: Future[int]) -> None:
        for future in (one.plain.call_one(2), gathered):
            try:
                future.get(LIMIT_S)
            except RuntimeError as error:
                told.append(str(error))

    first = one.wait.call_one()
    first.add_done_callback(blocks)
    one.open_gate.broadcast()
    first.get(LIMIT_S)
    assert one.plain.call_one(3).get(LIMIT_S) == 3  # that it goes on is the point
    assert len(told) == 2
    assert all("await it instead" in each for each in told)
    gathered.cancel()


def test_errors_and_cancellations_reach_a_thread_that_reads(pair) -> None:
    one = pair[0].slice(gpus=0)
    with pytest.raises(Exception, match="as it was asked to"):
        one.fail.call_one().get(LIMIT_S)
    waits = one.wait.call_one()
    timer = threading.Timer(0.05, waits.cancel)
    timer.start()
    with pytest.raises(asyncio.CancelledError):
        waits.get(LIMIT_S)
    waits = one.wait.call_one()
    with pytest.raises(TimeoutError):
        waits.get(0.01)
    assert one.plain.call_one(1).get(LIMIT_S) == 1
    waits.cancel()


def test_loops_that_come_and_go_leave_no_descriptors(pair) -> None:
    one = pair[0].slice(gpus=0)

    async def program() -> None:
        await one.on_loop.call_one(0)

    asyncio.run(program())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asyncio.run(program())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < before + 10  # the last loop may live still


ALARMED = """
import os, signal
from danaus.actor import Actor, concurrent_endpoint, endpoint, shutdown_context, this_host

class Waits(Actor):
    @concurrent_endpoint
    async def wait(self):
        import asyncio
        self.gate = asyncio.Event()
        await self.gate.wait()

    @concurrent_endpoint
    async def go_on(self):
        self.gate.set()

if __name__ == "__main__":
    procs = this_host().spawn_procs(per_host={"gpus": 1})
    waits = procs.spawn("waits", Waits)
    signal.signal(signal.SIGALRM, lambda *_: waits.go_on.call_one().get(30))
    for _ in range(3):
        pending = waits.wait.call_one()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        pending.get(30)
    print("went on")
    shutdown_context().get(30)
"""


def test_a_handler_of_a_signal_may_call_actors_while_the_program_waits_for_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "program.py"
    path.write_text(ALARMED)
    ran = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "went on\n"), ran.stderr


PROGRAM = """
import os, signal, sys, threading
from danaus.actor import Actor, concurrent_endpoint, endpoint, shutdown_context, this_host

class Waits(Actor):
    @endpoint
    def set_whose(self, whose: str) -> None:
        _whose.set(whose)

    @endpoint
    async def see_whose(self) -> str:
        return _whose.get()

    @concurrent_endpoint
    async def wait(self):
        import asyncio
        await asyncio.sleep(60)

    @endpoint
    def add(self, a, b):
        return a + b

if __name__ == "__main__":
    procs = this_host().spawn_procs(per_host={"gpus": 1})
    waits = procs.spawn("waits", Waits)
    assert waits.add.call_one(1, 2).get(30) == 3
    interrupted = 0
    for _ in range(5):
        pending = waits.wait.call_one()
        print("waiting", flush=True)
        try:
            pending.get()
        except KeyboardInterrupt:
            interrupted += 1
        assert waits.add.call_one(1, 2).get(30) == 3
    print("interrupted", interrupted, flush=True)
    shutdown_context().get(30)
"""


def test_ctrl_c_ends_the_wait_and_not_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        assert program.stdout is not None
        lines = []
        for line in program.stdout:
            lines.append(line.strip())
            if lines[-1] == "waiting":
                wait_until_it_polls(program.pid)
                os.kill(program.pid, signal.SIGINT)
        assert program.wait(LIMIT_S) == 0
    assert lines == ["waiting"] * 5 + ["interrupted 5"]


def wait_until_it_polls(pid: int) -> None:
    """Wait until the main thread sleeps in the kernel, for connections or on a lock."""
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        where = Path(f"/proc/{pid}/task/{pid}/wchan").read_text()
        if "poll" in where or "futex" in where:
            return
    raise TimeoutError("the program does not come to wait")
