"""Calls between real processes (A-1, A-2, A-4, A-5, A-6)."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from danaus.actor import (
    Actor,
    ActorError,
    Future,
    Outcome,
    SupervisionError,
    ValueMesh,
    concurrent_endpoint,
    context,
    current_actor_name,
    current_rank,
    current_size,
    endpoint,
    shutdown_context,
    this_host,
)
from danaus.actor import calls as calls_module
from danaus.core.errors import ConfigError, DeadlinePassed, MessageTooLarge
from danaus.job import LocalJob

LIMIT_S = 20.0


class Unpicklable(Exception):
    def __init__(self, lock):
        super().__init__("holds a lock")
        self.lock = lock


class Counter(Actor):
    def __init__(self, start: int = 0) -> None:
        self.n = start
        self.seen: list[int] = []
        self.gate = threading.Event()
        self.released = asyncio.Event()

    @endpoint
    def add(self, k: int) -> int:
        self.n += k
        return self.n + current_rank().rank

    @endpoint
    async def add_on_loop(self, k: int) -> int:
        before = self.n
        await asyncio.sleep(0)
        self.n = before + k
        return self.n

    @endpoint
    def note(self, k: int) -> None:
        self.seen.append(k)

    @endpoint
    async def note_on_loop(self, k: int) -> None:
        self.seen.append(k)

    @endpoint
    def noted(self) -> list[int]:
        return self.seen

    @endpoint
    def where(self) -> tuple[str, dict[str, int], dict[str, int], str]:
        return current_actor_name(), dict(current_rank()), current_size(), context().proc.process_id

    @endpoint
    def fail_on(self, rank: int) -> int:
        if current_rank().rank == rank:
            raise ValueError(f"rank {rank} says no")
        return current_rank().rank

    @endpoint
    def fail_unpicklable(self) -> None:
        raise Unpicklable(threading.Lock())

    @endpoint
    def echo(self, value: object) -> object:
        return value

    @endpoint
    def block(self) -> str:
        assert self.gate.wait(LIMIT_S)
        return "went on"

    @concurrent_endpoint
    def open_gate(self) -> None:
        self.gate.set()

    @concurrent_endpoint
    async def wait_for_release(self) -> str:
        await self.released.wait()
        return "released"

    @concurrent_endpoint
    async def release(self) -> None:
        self.released.set()


class Leaver(Actor):
    def __init__(self) -> None:
        self.never = Future()

    @endpoint
    async def leave(self, how: object) -> None:
        sys.exit(how)

    @endpoint
    def wait_in_vain(self) -> None:
        self.never.cancel()
        self.never.get(LIMIT_S)

    @endpoint
    def raise_outcome(self) -> None:
        pytest.fail("what a test framework raises is no Exception")

    @endpoint
    async def raise_group(self) -> None:
        raise BaseExceptionGroup("both", [ValueError("one"), GeneratorExit()])

    @endpoint
    def leak(self) -> None:
        raise GeneratorExit("of a generator")

    @endpoint
    def here(self) -> str:
        return "here"

    def __cleanup__(self, exc: BaseException | None) -> None:
        self.never.cancel()
        self.never.get(LIMIT_S)


class Spinner(Actor):
    @endpoint
    def spin(self) -> None:
        while True:
            time.monotonic()


@pytest.fixture
def counters(one):
    return one.host(0).spawn_procs({"gpus": 3}, name="w").spawn("counter", Counter, 10)


def test_call_returns_a_value_for_each_point(counters):
    values = counters.add.call(1).get(LIMIT_S)
    assert isinstance(values, ValueMesh)
    assert values.values() == (11, 12, 13)
    assert values.item(gpus=2) == 13
    assert counters.slice(gpus=slice(1, 3)).add.call(1).get(LIMIT_S).values() == (13, 14)
    assert counters.slice(gpus=2).add.call_one(5).get(LIMIT_S) == 19
    places = counters.where.call().get(LIMIT_S)
    assert places.get(1) == ("counter", {"gpus": 1}, {"gpus": 3}, "host0/w/1#0")


def test_bad_calls_are_refused_before_anything_is_sent(counters):
    with pytest.raises(ValueError, match=r"exactly one actor, this one has 3: gpus=3"):
        counters.add.call_one(1)
    with pytest.raises(TypeError, match="missing a required argument"):
        counters.add.call()
    with pytest.raises(AttributeError, match="no endpoint 'subtract': there are"):
        _ = counters.subtract
    assert counters.add.call(0).get(LIMIT_S).values() == (10, 11, 12)


def test_arguments_that_no_frame_holds_are_refused_and_hold_nothing_back(counters, monkeypatch):
    monkeypatch.setattr(calls_module, "MAX_ARGUMENT_BYTES", 1000)
    with pytest.raises(MessageTooLarge, match="a frame holds 1000"):
        counters.note.broadcast(bytes(2000))
    with pytest.raises(MessageTooLarge):
        counters.echo.call(bytes(2000))
    assert counters.add.call(0).get(LIMIT_S).values() == (10, 11, 12)


def test_messages_of_one_sender_keep_their_order_over_all_adverbs_and_slices(counters):
    for k in range(0, 300, 6):
        counters.note.broadcast(k)
        counters.slice(gpus=0).note.broadcast(k + 1)
        counters.note_on_loop.broadcast(k + 2)
        counters.slice(gpus=slice(0, 2)).note.call(k + 3)
        counters.note_on_loop.call(k + 4)
        counters.slice(gpus=0).note_on_loop.call_one(k + 5)
    noted = counters.noted.call().get(LIMIT_S)
    assert noted.get(0) == list(range(300))
    assert noted.get(2) == [k for k in range(300) if k % 6 in (0, 2, 4)]


def test_one_message_at_a_time_unless_the_endpoint_is_concurrent(counters):
    one = counters.slice(gpus=0)
    assert [f.get(LIMIT_S) for f in [one.add_on_loop.call_one(1) for _ in range(50)]][-1] == 60
    blocked, waiting = one.block.call_one(), one.wait_for_release.call_one()
    behind = one.add.call_one(0)
    one.open_gate.broadcast()  # starts behind ``behind``, which has to wait for ``blocked``
    with pytest.raises(TimeoutError):
        behind.get(0.05)
    one.release.broadcast()
    blocked_elsewhere = counters.slice(gpus=1).add.call_one(0)
    assert blocked_elsewhere.get(LIMIT_S) == 11
    assert not waiting.done()
    assert not blocked.done()


def test_a_concurrent_endpoint_runs_beside_one_that_blocks(counters):
    one = counters.slice(gpus=0)
    blocked = one.block.call_one()
    assert one.open_gate.call_one().get(LIMIT_S) is None
    assert blocked.get(LIMIT_S) == "went on"
    waiting = one.wait_for_release.call_one()
    one.release.call_one().get(LIMIT_S)
    assert waiting.get(LIMIT_S) == "released"


def test_an_endpoint_that_blocks_stops_nobody_else_in_its_process(one):
    procs = one.host(0).spawn_procs(name="w")
    spinner, counter = procs.spawn("spinner", Spinner), procs.spawn("counter", Counter, 1)
    spinner.spin.broadcast()
    for _ in range(3):
        assert counter.add.call_one(0).get(LIMIT_S) == 1
    assert counter.add_on_loop.call_one(1).get(LIMIT_S) == 2
    assert not one.has_failed


def test_an_endpoint_that_raises_is_an_actor_error_at_the_caller(counters):
    with pytest.raises(ExceptionGroup, match="1 of 3 actors failed") as caught:
        counters.fail_on.call(1).get(LIMIT_S)
    (error,) = caught.value.exceptions
    assert isinstance(error, ActorError)
    assert error.actor == "counter[gpus=1]"
    assert error.endpoint == "fail_on"
    assert isinstance(error.__cause__, ValueError)
    assert "in fail_on" in error.remote_traceback
    assert "rank 1 says no" in str(error)
    outcomes = counters.fail_on.settled(1).get(LIMIT_S).values()
    assert [outcome.ok for outcome in outcomes] == [True, False, True]
    assert outcomes[2] == Outcome(2)
    with pytest.raises(ActorError, match="says no"):
        counters.slice(gpus=1).fail_on.call_one(1).get(LIMIT_S)
    assert counters.add.call(0).get(LIMIT_S).get(1) == 11


def test_an_exception_that_does_not_pickle_still_tells_its_traceback(counters):
    with pytest.raises(ActorError, match="holds a lock") as caught:
        counters.slice(gpus=0).fail_unpicklable.call_one().get(LIMIT_S)
    assert caught.value.__cause__ is None
    with pytest.raises(ActorError, match="cannot pickle"):
        counters.slice(gpus=0).echo.call_one(Late()).get(LIMIT_S)


class Late:
    """Pickles on the way there, not on the way back."""

    def __reduce__(self):
        return Late.arrived, ()

    @staticmethod
    def arrived():
        return threading.Lock()


def test_broadcast_waits_for_nobody_and_its_failure_goes_to_the_owner(one, counters):
    counters.fail_on.broadcast(2)
    failure = one.failure()
    assert (failure.mesh, failure.kind, failure.ranks) == ("counter", "exception", (2,))
    assert isinstance(failure.exception, ValueError)
    assert "in fail_on" in failure.traceback
    assert counters.add.call(0).get(LIMIT_S).get(2) == 12


def test_a_call_ends_with_the_caller_s_own_limit(counters):
    one = counters.slice(gpus=0)
    with pytest.raises(DeadlinePassed, match=r"waited 0\.1 s for counter\[.*\]\.block"):
        one.block.with_options(timeout_s=0.1).call_one().get(LIMIT_S)
    some = counters.block.with_options(timeout_s=0.1).settled().get(LIMIT_S)
    assert [type(outcome.error) for outcome in some.values()] == [DeadlinePassed] * 3


def test_cancelling_a_call_cancels_the_endpoint(counters):
    one = counters.slice(gpus=0)

    async def cancel():
        waiting = one.wait_for_release.call_one().as_asyncio()
        await one.add.call_one(0)
        waiting.cancel()
        await one.release.call_one()
        return await one.add.call_one(0)

    assert asyncio.run(cancel()) == 10


def test_large_buffers_arrive_whole_and_are_the_receiver_s(counters):
    data = bytearray(range(256)) * 4096
    back = counters.slice(gpus=0).echo.call_one(memoryview(data).tobytes()).get(LIMIT_S)
    assert back == bytes(data)


def test_a_program_that_asked_for_no_job_has_a_host_too(one):
    here = this_host().spawn_procs({"gpus": 2}).spawn("counter", Counter, 1)
    assert here.add.call(1).get(LIMIT_S).values() == (2, 3)
    assert here.sizes == {"hosts": 1, "gpus": 2}
    there = one.host(0).spawn_procs(name="w").spawn("counter", Counter, 5)
    assert there.add.call_one(0).get(LIMIT_S) == 5


def test_a_call_to_what_was_stopped_ends_in_a_supervision_error(counters):
    counters.stop().get(LIMIT_S)
    with pytest.raises(ExceptionGroup) as caught:
        counters.add.call(1).get(LIMIT_S)
    assert all(isinstance(error, SupervisionError) for error in caught.value.exceptions)
    assert "was stopped" in str(caught.value.exceptions[0])


def test_a_cancelled_future_is_an_error_of_the_endpoint_and_holds_up_no_stop(one):
    actor = one.host(0).spawn_procs(name="w").spawn("leaver", Leaver)
    with pytest.raises(ActorError, match="was cancelled"):
        actor.wait_in_vain.call_one().get(LIMIT_S)
    assert actor.here.call_one().get(LIMIT_S) == "here"
    with pytest.raises(ActorError, match="__cleanup__ raised RuntimeError: it was cancelled"):
        actor.stop().get(LIMIT_S)


def test_what_is_raised_and_is_no_exception_is_an_error_of_the_endpoint_too(one):
    actor = one.host(0).spawn_procs(name="w").spawn("leaver", Leaver)
    with pytest.raises(ActorError, match="Failed: what a test framework raises"):
        actor.raise_outcome.call_one().get(LIMIT_S)
    with pytest.raises(ActorError, match="BaseExceptionGroup: both"):
        actor.raise_group.call_one().get(LIMIT_S)
    with pytest.raises(ActorError, match="GeneratorExit: of a generator"):
        actor.leak.call_one().get(LIMIT_S)
    assert actor.here.call_one().get(LIMIT_S) == "here"


@pytest.mark.parametrize(("how", "code", "words"), [(3, 3, ()), ("enough", 1, ("enough",))])
def test_an_exit_on_the_loop_ends_the_process(one, how, code, words):
    actor = one.host(0).spawn_procs(name="w").spawn("leaver", Leaver)
    with pytest.raises(SupervisionError) as caught:
        actor.leave.call_one(how).get(LIMIT_S)
    assert (caught.value.exit_code, caught.value.log_tail) == (code, words)
    assert one.failure().exit_code == code


@pytest.fixture
def left_hosts(tmp_path):
    """Hosts of a job that this process has left."""
    with LocalJob(1, run_dir=tmp_path / "run") as job:
        hosts = job.state().hosts
    yield hosts
    shutdown_context()


def test_what_is_asked_of_a_job_that_was_left_ends_at_once(left_hosts):
    procs = left_hosts.spawn_procs(name="w")
    with pytest.raises(ConfigError, match="does not take part in job"):
        procs.initialized.get(LIMIT_S)
    actor = procs.spawn("leaver", Leaver)
    with pytest.raises(SupervisionError, match="does not take part in job"):
        actor.slice(hosts=0).here.call_one().get(LIMIT_S)
    procs.stop().get(LIMIT_S)


def test_what_a_loop_has_sent_goes_even_if_it_blocks_at_once(one):
    counter = one.host(0).spawn_procs().spawn("counter", Counter, 0)

    async def send_and_block():
        await counter.add.call_one(1)
        sent = [counter.add.call_one(1) for _ in range(3)]
        # No turn of this loop ends here: nobody but the connections' thread can send the rest.
        return [each.get(LIMIT_S) for each in sent]

    assert asyncio.run(send_and_block()) == [2, 3, 4]


def test_calls_of_several_threads_and_broadcasts_between_keep_each_threads_order(one):
    counter = one.host(0).spawn_procs().spawn("counter", Counter, 0)

    def send(who):
        for number in range(100):
            counter.note.broadcast((who, number))
            if number % 7 == who:
                counter.note.call_one((who, number)).get(LIMIT_S)

    threads = [threading.Thread(target=send, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = counter.noted.call_one().get(LIMIT_S)
    for who in range(3):
        expected = [n for n in range(100) for _ in range(2 if n % 7 == who else 1)]
        assert [number for told, number in seen if told == who] == expected
