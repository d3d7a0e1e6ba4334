"""A mesh of more processes than are sent to directly: others pass on (A-1, A-4, A-11)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from danaus.actor import (
    Actor,
    SupervisionError,
    concurrent_endpoint,
    current_rank,
    endpoint,
    targets,
)
from danaus.actor.tree import FAN_OUT
from danaus.core.errors import DeadlinePassed

LIMIT_S = 30.0
NUM = 20


class Member(Actor):
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.gate = threading.Event()

    @endpoint
    def note(self, k: int) -> int:
        self.seen.append(k)
        return current_rank().rank

    @endpoint
    def noted(self) -> list[int]:
        return self.seen

    @endpoint
    def wait(self) -> int:
        self.seen.append(-1)
        assert self.gate.wait(LIMIT_S)
        return current_rank().rank

    @concurrent_endpoint
    def go_on(self) -> int:
        self.gate.set()
        return os.getpid()

    @endpoint
    def fail_on(self, rank: int) -> None:
        if current_rank().rank == rank:
            raise ValueError(f"rank {rank} says no")


@pytest.fixture
def members(one, monkeypatch):
    monkeypatch.setattr(targets, "DIRECT", FAN_OUT)  # as if they were many more
    mesh = one.host(0).spawn_procs(per_host={"p": NUM}).spawn("members", Member)
    mesh.initialized.get(LIMIT_S)
    return mesh


def test_all_hear_in_order_by_whatever_route(members):
    for k in range(3):
        members.note.broadcast(4 * k)
        members.slice(p=19).note.broadcast(4 * k + 1)
        assert members.note.call(4 * k + 2).get(LIMIT_S).values() == tuple(range(NUM))
        members.slice(p=0).note.call_one(4 * k + 3).get(LIMIT_S)
    noted = members.noted.call().get(LIMIT_S).values()
    assert noted[0] == [4 * k + each for k in range(3) for each in (0, 2, 3)]
    assert noted[19] == [4 * k + each for k in range(3) for each in (0, 1, 2)]
    assert all(each == [4 * k + j for k in range(3) for j in (0, 2)] for each in noted[1:19])


def test_an_error_comes_from_where_it_was_raised(members):
    outcomes = members.fail_on.settled(18).get(LIMIT_S).values()
    assert [at for at, each in enumerate(outcomes) if not each.ok] == [18]
    assert "rank 18 says no" in str(outcomes[18].error)


def test_those_whose_answers_went_by_one_that_was_killed_answer_all_the_same(one, members):
    waiting = members.wait.settled()
    pids = members.go_on.call().get(LIMIT_S).values()
    assert waiting.get(LIMIT_S)
    members.note.broadcast(1)
    waiting = members.wait.settled()
    os.kill(pids[0], signal.SIGKILL)
    outcomes = waiting.get(LIMIT_S).values()
    assert isinstance(outcomes[0].error, SupervisionError)
    assert [each.value for each in outcomes[1:]] == list(range(1, NUM))
    noted = [each.value for each in members.noted.settled().get(LIMIT_S).values()[1:]]
    assert noted == [[-1, 1, -1]] * (NUM - 1)
    assert one.failure(LIMIT_S).signal == "SIGKILL"


def test_late_answers_and_cancelled_calls_end(members):
    late = members.wait.with_options(timeout_s=0.2).settled().get(LIMIT_S).values()
    assert all(isinstance(each.error, DeadlinePassed) for each in late)

    async def give_up():
        task = asyncio.ensure_future(members.note.call(5).as_asyncio())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    members.go_on.call().get(LIMIT_S)
    assert members.note.call(6).get(LIMIT_S).values() == tuple(range(NUM))
