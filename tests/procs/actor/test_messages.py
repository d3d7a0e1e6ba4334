"""Adverbs, ports and response ports between real processes (A-1, A-4, A-10)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from danaus.actor import (
    Accumulator,
    Actor,
    ActorError,
    Channel,
    Port,
    SupervisionError,
    as_endpoint,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    send,
    wait_all,
)
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, DeadlinePassed

LIMIT_S = 20.0


class Worker(Actor):
    def __init__(self) -> None:
        self.kept: list[Port[str]] = []
        self.gate = threading.Event()
        self.num_calls = 0
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    @endpoint
    def rank(self) -> int:
        return current_rank().rank

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def fail_on(self, rank: int) -> int:
        if current_rank().rank == rank:
            raise ValueError(f"rank {rank} says no")
        return current_rank().rank

    @endpoint
    def wait_unless(self, rank: int) -> int:
        if current_rank().rank != rank:
            assert self.gate.wait(LIMIT_S)
        return current_rank().rank

    @concurrent_endpoint
    def open_gate(self) -> None:
        self.gate.set()

    @endpoint
    def send_to(self, port: Port[object], count: int) -> None:
        for k in range(count):
            port.send((current_rank().rank, k))

    @endpoint
    def send_error(self, port: Port[object]) -> None:
        port.exception(KeyError("sent"))

    @endpoint
    def pass_on(self, port: Port[object], others) -> None:
        others.send_to.broadcast(port, 1)

    @endpoint(explicit_response_port=True)
    def later(self, port: Port[str], word: str) -> None:
        self.kept.append(port)
        if word == "now":
            port.send("at once")
        if word == "raise":
            raise ValueError("before an answer")
        if word == "raise after":
            port.send("answered")
            raise ValueError("after the answer")

    @endpoint(explicit_response_port=True)
    async def later_async(self, port: Port[str], word: str) -> None:
        port.send(word)

    @endpoint
    def answer_kept(self, word: str) -> None:
        self.kept.pop(0).send(word)

    @endpoint
    def hand_over_kept(self) -> Port[str]:
        return self.kept.pop(0)

    @endpoint
    def answer_for(self, port: Port[str], word: str) -> None:
        port.send(word)

    @endpoint(idempotent=True)
    def slow_at_first(self) -> int:
        self.num_calls += 1
        if self.num_calls == 1:
            assert self.gate.wait(LIMIT_S)
        return self.num_calls

    @concurrent_endpoint
    async def wait_to_be_cancelled(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    @concurrent_endpoint
    async def has_started(self) -> bool:
        return await self.started.wait()

    @endpoint
    def work_until_cancelled(self) -> None:
        assert not context().is_cancelled
        self.gate.set()
        deadline = Deadline.after(LIMIT_S)
        while not context().is_cancelled and not deadline.passed:
            os.sched_yield()
        if not deadline.passed:
            self.num_calls += 1

    @concurrent_endpoint
    def wait_for_gate(self) -> bool:
        return self.gate.wait(LIMIT_S)

    @endpoint
    def get_num_calls(self) -> int:
        return self.num_calls if not context().is_cancelled else -1

    @concurrent_endpoint
    async def was_cancelled(self) -> bool:
        return await self.cancelled.wait()

    def plain(self, k: int) -> int:
        return k + 1

    def plain_with_port(self, port: Port[int], k: int) -> None:
        port.send(k + 2)


@pytest.fixture
def procs(one):
    return one.host(0).spawn_procs({"gpus": 3}, name="w")


@pytest.fixture
def workers(procs):
    return procs.spawn("worker", Worker)


def test_stream_gives_answers_as_they_arrive(workers):
    replies = workers.wait_unless.stream(1)
    assert len(replies) == 3
    assert next(replies).get(LIMIT_S) == 1
    workers.open_gate.broadcast()
    assert sorted(reply.get(LIMIT_S) for reply in replies) == [0, 2]


def test_stream_can_be_iterated_asynchronously_and_tells_errors_one_by_one(workers):
    async def collect():
        return [reply.exception() or reply.get() async for reply in workers.fail_on.stream(1)]

    found = asyncio.run(collect())
    assert sorted(each for each in found if isinstance(each, int)) == [0, 2]
    assert [type(each) for each in found if not isinstance(each, int)] == [ActorError]


def test_stream_ends_when_processes_do(procs, workers):
    replies = workers.wait_unless.stream(0)
    assert next(replies).get(LIMIT_S) == 0
    for pid in workers.slice(gpus=slice(1, 3)).pid.stream():
        assert not pid.done()  # behind what blocks
    procs.kill()
    for reply in replies:
        with pytest.raises(SupervisionError):
            reply.get(LIMIT_S)


def test_choose_passes_over_those_that_are_busy_or_gone(one, procs, workers):
    assert sorted(workers.rank.choose().get(LIMIT_S) for _ in range(3)) == [0, 1, 2]
    busy = [workers.wait_unless.choose(-1) for _ in range(2)]
    free = {workers.rank.choose().get(LIMIT_S) for _ in range(4)}
    assert len(free) == 1
    workers.open_gate.broadcast()
    wait_all(busy).get(LIMIT_S)
    os.kill(workers.slice(gpus=1).pid.call_one().get(LIMIT_S), signal.SIGKILL)
    assert one.failure().ranks == (1,)
    assert {workers.rank.choose().get(LIMIT_S) for _ in range(6)} == {0, 2}


def test_send_has_answers_and_errors_come_to_a_port_with_their_ranks(workers):
    port, receiver = Channel[int].open()
    ranked = receiver.ranked()
    send(workers.rank, (), {}, port=port)
    assert sorted(ranked.recv().get(LIMIT_S) for _ in range(3)) == [(0, 0), (1, 1), (2, 2)]
    send(workers.slice(gpus=1).fail_on, (0,), port=port)  # of a slice: its own rank
    assert ranked.recv().get(LIMIT_S) == (0, 1)
    send(workers.slice(gpus=2).fail_on, (2,), port=port)
    with pytest.raises(ActorError, match="rank 2 says no") as caught:
        receiver.recv().get(LIMIT_S)
    assert isinstance(caught.value.__cause__, ValueError)
    send(workers.rank, (), port=port, selection="choose")
    receiver.recv().get(LIMIT_S)
    assert not receiver.recv().done()


def test_send_to_what_is_gone_comes_to_the_port_as_well(workers):
    workers.stop().get(LIMIT_S)
    port, receiver = Channel[int].open()
    send(workers.slice(gpus=0).rank, (), port=port)
    with pytest.raises(SupervisionError, match="was stopped"):
        receiver.recv().get(LIMIT_S)


def test_a_port_works_from_anywhere_and_keeps_each_sender_s_order(workers):
    port, receiver = Channel[tuple[int, int]].open()
    workers.slice(gpus=0).send_to.broadcast(port, 50)
    workers.slice(gpus=1).send_to.broadcast(port, 50)
    got = [receiver.recv().get(LIMIT_S) for _ in range(100)]
    for rank in (0, 1):
        assert [k for sender, k in got if sender == rank] == list(range(50))
    workers.slice(gpus=0).pass_on.broadcast(port, workers.slice(gpus=2))
    assert receiver.recv().get(LIMIT_S) == (2, 0)
    workers.slice(gpus=1).send_error.call_one(port).get(LIMIT_S)
    with pytest.raises(KeyError):
        receiver.recv().get(LIMIT_S)

    async def collect():
        workers.send_to.broadcast(port, 1)
        found = []
        async for rank, _ in receiver:
            found.append(rank)
            if len(found) == 3:
                receiver.close()
        return sorted(found)

    assert asyncio.run(collect()) == [0, 1, 2]


class Receiver(Actor):
    def __init__(self) -> None:
        self.port, self.receiver = Channel[int].open()

    @endpoint
    def give(self) -> Port[int]:
        return self.port

    @endpoint
    def received(self) -> int:
        return self.receiver.recv().get(LIMIT_S)


def test_a_port_of_a_process_that_is_gone_says_so(one, workers):
    procs = one.host(0).spawn_procs(name="r")
    receiver = procs.spawn("receiver", Receiver)
    port = receiver.give.call_one().get(LIMIT_S)
    port.send(5)
    assert receiver.received.call_one().get(LIMIT_S) == 5
    procs.kill().get(LIMIT_S)
    with pytest.raises(SupervisionError, match=r"port 1 of host0/r/0#0 is gone"):
        port.send(6)
    # One who never spoke with that process is told once it has looked for it.
    caught, deadline = None, Deadline.after(LIMIT_S)
    while caught is None and not deadline.passed:
        answer = workers.slice(gpus=0).answer_for.settled(port, "x").get(LIMIT_S).item()
        caught = answer.error
    assert isinstance(caught, ActorError)
    assert isinstance(caught.__cause__, SupervisionError)


def test_a_response_port_answers_later_from_another_message(workers):
    one = workers.slice(gpus=0)
    assert one.later.call_one("now").get(LIMIT_S) == "at once"
    one.hand_over_kept.call_one().get(LIMIT_S)
    waiting = one.later.call_one("later")
    assert one.rank.call_one().get(LIMIT_S) == 0  # the endpoint has returned
    assert not waiting.done()
    one.answer_kept.call_one("said at last").get(LIMIT_S)
    assert waiting.get(LIMIT_S) == "said at last"
    assert one.later_async.call_one("soon").get(LIMIT_S) == "soon"
    assert workers.later.call("now").get(LIMIT_S).values() == ("at once",) * 3


def test_a_response_port_answers_from_another_process(workers):
    one, two = workers.slice(gpus=0), workers.slice(gpus=1)
    waiting = one.later.call_one("later")
    port = one.hand_over_kept.call_one().get(LIMIT_S)
    two.answer_for.call_one(port, "from elsewhere").get(LIMIT_S)
    assert waiting.get(LIMIT_S) == "from elsewhere"
    waiting = one.later.call_one("later")
    one.hand_over_kept.call_one().get(LIMIT_S).exception(KeyError("here"))
    with pytest.raises(ActorError, match="KeyError") as caught:
        waiting.get(LIMIT_S)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_call_with_a_response_port_ends_however_its_actor_does(one, procs, workers):
    with pytest.raises(ActorError, match="before an answer"):
        workers.slice(gpus=0).later.call_one("raise").get(LIMIT_S)
    assert workers.slice(gpus=0).later.call_one("raise after").get(LIMIT_S) == "answered"
    assert "after the answer" in one.failure().reason  # nobody waited for that any more
    workers.slice(gpus=0).later.broadcast("now")
    waiting = workers.slice(gpus=1).later.call_one("never")
    pid = workers.slice(gpus=1).pid.call_one().get(LIMIT_S)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SupervisionError, match="SIGKILL"):
        waiting.get(LIMIT_S)
    waiting = workers.slice(gpus=2).later.call_one("never")
    workers.slice(gpus=2).rank.call_one().get(LIMIT_S)
    workers.stop().get(LIMIT_S)
    with pytest.raises(SupervisionError, match="was stopped"):
        waiting.get(LIMIT_S)


def test_a_plain_method_can_be_called_as_an_endpoint(workers):
    assert as_endpoint(workers.plain).call(1).get(LIMIT_S).values() == (2, 2, 2)
    one = workers.slice(gpus=0)
    ported = as_endpoint(one.plain_with_port, explicit_response_port=True)
    assert ported.call_one(1).get(LIMIT_S) == 3
    with pytest.raises(TypeError, match="is a method of its actors and no endpoint"):
        workers.plain(1)
    with pytest.raises(TypeError, match="missing a required argument"):
        as_endpoint(workers.plain).call()
    with pytest.raises(TypeError, match="is not a method"):
        as_endpoint(workers.rank)


def test_an_accumulator_combines_in_the_order_of_ranks(workers):
    listed = Accumulator(workers.rank, [], lambda so_far, rank: [*so_far, rank])
    assert listed.accumulate().get(LIMIT_S) == [0, 1, 2]
    with pytest.raises(ExceptionGroup):
        Accumulator(workers.fail_on, 0, int.__add__).accumulate(1).get(LIMIT_S)

    async def total() -> int:
        return await Accumulator(workers.rank, 10, int.__add__).accumulate()

    assert asyncio.run(total()) == 13


def test_wait_all_waits_for_calls_of_several_kinds(workers):
    one = workers.slice(gpus=1)
    assert wait_all([one.rank.call_one(), workers.rank.choose()]).get(LIMIT_S)[0] == 1
    with pytest.raises(ExceptionGroup, match="1 of 2"):
        wait_all([one.rank.call_one(), one.fail_on.call_one(1)]).get(LIMIT_S)


def test_an_idempotent_endpoint_is_retried_and_no_other(workers):
    one = workers.slice(gpus=0)
    one.rank.call_one().get(LIMIT_S)  # it lives
    waiting = one.slow_at_first.with_options(timeout_s=0.2, retries=40).call_one()
    with pytest.raises(TimeoutError):
        waiting.get(0.5)  # every try waits behind the first, which blocks
    one.open_gate.broadcast()
    assert waiting.get(LIMIT_S) > 1
    with pytest.raises(ConfigError, match="declared with idempotent=True"):
        one.rank.with_options(retries=1)
    with pytest.raises(DeadlinePassed):
        workers.slice(gpus=1).wait_unless.with_options(timeout_s=0.05).choose(5).get(LIMIT_S)


def test_cancelling_reaches_the_endpoint_once_nobody_waits_any_more(workers):
    one = workers.slice(gpus=0)

    async def run():
        call = one.wait_to_be_cancelled.call_one()
        first, second = (asyncio.ensure_future(_value(call)) for _ in range(2))
        await one.has_started.call_one()
        first.cancel()
        await asyncio.wait([first])
        assert not call.done()
        second.cancel()
        await asyncio.wait([second])
        return await one.was_cancelled.call_one()

    assert asyncio.run(run())


async def _value(future):
    return await future


def test_a_plain_endpoint_can_see_that_its_call_was_given_up(workers):
    one = workers.slice(gpus=0)
    call = one.work_until_cancelled.call_one()
    assert one.wait_for_gate.call_one().get(LIMIT_S)
    call.cancel()
    assert one.get_num_calls.call_one().get(LIMIT_S) == 1  # it has returned, and this is another
