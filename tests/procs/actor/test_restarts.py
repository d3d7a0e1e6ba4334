"""Actors and processes that are started again by a policy; references stay good (A-9)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from danaus.actor import (
    Actor,
    MeshFailure,
    Restart,
    SupervisionError,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)
from danaus.core.clock import Deadline

LIMIT_S = 20.0


class Worker(Actor):
    def __init__(self, folder: Path | None = None, fail_times: int = 0) -> None:
        self.n = 0
        self.folder = folder
        if folder is not None:
            made = len(list(folder.glob("made.*")))
            (folder / f"made.{made}.{current_rank().rank}").touch()
            if 1 <= made <= fail_times:
                raise RuntimeError(f"cannot be made, try {made}")

    @endpoint
    def count(self) -> int:
        self.n += 1
        return self.n

    @endpoint(idempotent=True)
    def where(self) -> tuple[int, int]:
        return os.getpid(), context().proc.incarnation

    @endpoint
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    @endpoint
    def raise_error(self) -> None:
        raise ValueError("boom")

    @endpoint
    def leave(self, code: int) -> None:
        sys.exit(code)

    @endpoint
    def own(self) -> int:
        inner = this_host().spawn_procs(name=f"inner{self.n}").spawn("inner", Worker)
        return inner.slice(hosts=0).where.call_one().get(LIMIT_S)[0]

    def __cleanup__(self, exc: BaseException | None) -> None:
        if self.folder is not None:
            (self.folder / f"cleaned.{current_rank().rank}").touch()


class Asker(Actor):
    """Holds a reference from before anything failed."""

    def __init__(self, others) -> None:
        self.others = others

    @endpoint
    def ask(self) -> list[tuple[int, int]]:
        return list(self.others.where.call().get(LIMIT_S).values())

    @endpoint
    def where(self) -> tuple[int, int]:
        return self.others.slice(r=1).where.call_one().get(LIMIT_S)


@pytest.fixture
def procs(one):
    return one.host(0).spawn_procs({"r": 3}, name="w")


def until(condition) -> None:
    """Wait for what a failure leads to, which nobody is told of."""
    deadline = Deadline.after(LIMIT_S)
    while not condition():
        assert not deadline.passed
        os.sched_yield()


def answers(actors, rank: int):
    """Return where a rank is once it answers."""
    found = []

    def asked() -> bool:
        outcome = actors.slice(r=rank).where.settled().get(LIMIT_S).item()
        found.append(outcome)
        return outcome.ok

    until(asked)
    return found[-1].get()


def test_a_killed_process_is_replaced_and_every_reference_stays_good(one, procs):
    workers = procs.spawn("worker", Worker, restart=Restart())
    asker = one.host(0).spawn_procs(name="asker").spawn("asker", Asker, workers)
    before = asker.ask.call_one().get(LIMIT_S)
    assert [incarnation for _, incarnation in before] == [0, 0, 0]
    assert [workers.count.call().get(LIMIT_S).get(1) for _ in range(2)] == [1, 2]
    os.kill(before[1][0], signal.SIGKILL)
    pid, incarnation = answers(workers, 1)
    assert (pid != before[1][0], incarnation) == (True, 1)
    after = asker.ask.call_one().get(LIMIT_S)  # by a reference of another process
    assert after == [before[0], (pid, 1), before[2]]
    assert workers.count.call().get(LIMIT_S).values() == (3, 1, 3)  # it began anew
    fresh = one.host(0).spawn_procs(name="fresh").spawn("asker", Asker, workers)
    assert fresh.where.call_one().get(LIMIT_S) == (pid, 1)  # one that never knew the old
    assert procs.pids()["host0/w/1#1"] == pid
    late = procs.spawn("late", Worker, restart=Restart())
    assert late.where.call().get(LIMIT_S).get(1) == (pid, 1)
    os.kill(pid, signal.SIGKILL)
    assert answers(workers, 1)[1] == 2
    assert not one.has_failed


def test_what_was_sent_to_a_process_that_dies_is_lost_and_its_sender_told(one, procs):
    workers = procs.spawn("worker", Worker, restart=Restart())
    workers.where.call().get(LIMIT_S)
    with pytest.raises(SupervisionError, match="exit code 3"):
        workers.slice(r=0).leave.call_one(3).get(LIMIT_S)
    assert answers(workers, 0)[1] == 1
    retried = workers.slice(r=0).where.with_options(retries=3)
    workers.slice(r=0).leave.broadcast(3)
    assert retried.call_one().get(LIMIT_S)[1] == 2  # behind it, and tried again


def test_messages_keep_their_order_after_a_restart(one, procs):
    workers = procs.spawn("worker", Worker, restart=Restart())
    rank = workers.slice(r=2)
    for _ in range(5):
        rank.count.broadcast()
    assert rank.count.call_one().get(LIMIT_S) == 6
    os.kill(rank.where.call_one().get(LIMIT_S)[0], signal.SIGKILL)
    answers(workers, 2)
    counted = [rank.count.call_one() for _ in range(50)]
    assert [count.get(LIMIT_S) for count in counted] == list(range(1, 51))


def test_an_actor_that_failed_begins_anew_in_its_process(one, procs, tmp_path):
    workers = procs.spawn("worker", Worker, tmp_path, restart=Restart())
    before = workers.where.call().get(LIMIT_S)
    rank = workers.slice(r=1)
    rank.count.call_one().get(LIMIT_S)
    inner = one.watch(rank.own.call_one().get(LIMIT_S))
    rank.raise_error.broadcast()
    until(lambda: len(list(tmp_path.glob("made.*.1"))) == 2)
    assert rank.count.call_one().get(LIMIT_S) == 1
    assert inner.ends_within(LIMIT_S)  # what the old one owned ended with it
    assert [path.name for path in tmp_path.glob("cleaned.*")] == ["cleaned.1"]
    assert workers.where.call().get(LIMIT_S) == before
    assert not one.has_failed


@pytest.mark.parametrize(
    ("strategy", "made"),
    [("one_for_one", [1]), ("one_for_all", [0, 1, 2]), ("rest_for_one", [1, 2])],
)
def test_a_strategy_says_who_begins_anew_with_who_failed(one, procs, tmp_path, strategy, made):
    workers = procs.spawn("worker", Worker, tmp_path, restart=Restart(strategy))
    before = workers.where.call().get(LIMIT_S)
    workers.count.call().get(LIMIT_S)
    os.kill(before.get(1)[0], signal.SIGKILL)
    until(lambda: len(list(tmp_path.glob("made.*"))) == 3 + len(made))
    assert answers(workers, 1)[1] == 1
    after = workers.where.call().get(LIMIT_S)
    assert (after.get(0), after.get(2)) == (before.get(0), before.get(2))
    counted = workers.count.call().get(LIMIT_S).values()
    assert [rank for rank, n in enumerate(counted) if n == 1] == made


def test_a_budget_that_is_used_up_leaves_the_failure_to_the_owner(one, procs):
    workers = procs.spawn("worker", Worker, restart=Restart(intensity=1, period_s=1000.0))
    os.kill(workers.slice(r=0).where.call_one().get(LIMIT_S)[0], signal.SIGKILL)
    pid, _ = answers(workers, 0)
    assert not one.has_failed
    os.kill(pid, signal.SIGKILL)
    failure = one.failure()
    assert (failure.mesh, failure.ranks, failure.signal) == ("w", (0,), "SIGKILL")
    assert "not started again: 2 failures in 1000 s, 1 allowed" in failure.reason
    with pytest.raises(SupervisionError):
        workers.slice(r=0).where.call_one().get(LIMIT_S)
    assert workers.slice(r=1).where.call_one().get(LIMIT_S)[1] == 0


def test_a_constructor_that_fails_is_tried_again_after_a_while(one, tmp_path):
    policy = Restart(intensity=3, period_s=1000.0, backoff_s=0.05)
    procs = one.host(0).spawn_procs({"r": 1}, name="w")
    workers = procs.spawn("worker", Worker, tmp_path, 2, restart=policy)
    workers.where.call().get(LIMIT_S)
    workers.slice(r=0).raise_error.broadcast()  # twice it cannot be made again
    until(lambda: len(list(tmp_path.glob("made.*"))) == 4)
    assert answers(workers, 0)[1] == 0
    assert workers.slice(r=0).count.call_one().get(LIMIT_S) == 1
    assert not one.has_failed
    workers.slice(r=0).raise_error.broadcast()
    assert "not started again: 4 failures" in one.failure().reason


@pytest.mark.parametrize(("lifetime", "again"), [("transient", False), ("permanent", True)])
def test_a_transient_actor_may_leave(one, procs, lifetime, again):
    workers = procs.spawn("worker", Worker, restart=Restart(lifetime=lifetime))
    workers.where.call().get(LIMIT_S)
    workers.slice(r=2).leave.broadcast(0)
    if again:
        until(lambda: answers(workers, 2)[1] == 1)
        assert not one.has_failed
    else:
        assert one.failure().exit_code == 0


def test_actors_without_a_policy_on_the_same_process_are_lost_and_told(one, procs):
    workers = procs.spawn("worker", Worker, restart=Restart())
    others = procs.spawn("other", Worker)
    pid = others.slice(r=1).where.call_one().get(LIMIT_S)[0]
    os.kill(pid, signal.SIGKILL)
    failure = one.failure()
    assert (failure.mesh, failure.ranks) == ("other", (1,))
    assert answers(workers, 1)[1] == 1
    with pytest.raises(SupervisionError):
        others.slice(r=1).where.call_one().get(LIMIT_S)
    assert others.slice(r=0).where.call_one().get(LIMIT_S)[1] == 0


def test_meshes_that_began_anew_end_like_others(one, procs):
    workers = procs.spawn("worker", Worker, restart=Restart(backoff_s=1000.0, max_backoff_s=1000.0))
    os.kill(workers.slice(r=0).where.call_one().get(LIMIT_S)[0], signal.SIGKILL)
    pid, _ = answers(workers, 0)
    os.kill(pid, signal.SIGKILL)  # and now it would wait
    others = workers.slice(r=slice(1, 3)).where.call().get(LIMIT_S)
    living = [one.watch(each) for each, _ in others.values()]
    with pytest.raises(SupervisionError, match=r"was not started again so far|SIGKILL"):
        workers.slice(r=0).where.call_one().get(LIMIT_S)
    workers.stop().get(LIMIT_S)
    procs.stop().get(LIMIT_S)
    assert all(each.ends_within(LIMIT_S) for each in living)
    assert not one.has_failed


def test_an_actor_of_this_program_begins_anew_too(one):
    worker = this_proc().spawn("worker", Worker, restart=Restart())
    worker.count.call_one().get(LIMIT_S)
    worker.raise_error.broadcast()
    until(lambda: worker.count.call_one().get(LIMIT_S) == 1)
    assert not one.has_failed


class Owner(Actor):
    """Owns workers that come back, in a process that is not the program's."""

    def __init__(self) -> None:
        procs = this_host().spawn_procs({"r": 2}, name="low")
        self.workers = procs.spawn("worker", Worker, restart=Restart(intensity=1))
        self.told: list[str] = []

    @endpoint
    def get_workers(self):
        return self.workers.slice(hosts=0)

    @concurrent_endpoint
    def was_told(self) -> list[str]:
        return self.told

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.told.append(failure.reason)
        return True


def test_an_owner_in_any_process_can_have_a_policy(one):
    owner = one.host(0).spawn_procs(name="top").spawn("owner", Owner)
    workers = owner.get_workers.call_one().get(LIMIT_S)
    os.kill(workers.slice(r=1).where.call_one().get(LIMIT_S)[0], signal.SIGKILL)
    pid, incarnation = answers(workers, 1)
    assert incarnation == 1
    assert owner.was_told.call_one().get(LIMIT_S) == []
    os.kill(pid, signal.SIGKILL)
    until(lambda: owner.was_told.call_one().get(LIMIT_S))
    (reason,) = owner.was_told.call_one().get(LIMIT_S)
    assert reason.endswith("not started again: 2 failures in 60 s, 1 allowed")
    assert not one.has_failed


def test_a_process_that_never_comes_up_is_tried_as_often_as_is_allowed(one):
    def prepare() -> None:
        raise RuntimeError("no such device")

    procs = one.host(0).spawn_procs({"r": 1}, prepare, "w")
    workers = procs.spawn("worker", Worker, restart=Restart(intensity=2))
    call = workers.slice(r=0).where.call_one()
    failure = one.failure()
    assert failure.process_ids == ("host0/w/0#2",)
    assert "not started again: 3 failures" in failure.reason
    assert "RuntimeError: no such device" in failure.log_tail
    with pytest.raises(SupervisionError):
        call.get(LIMIT_S)
    with pytest.raises(SupervisionError, match="no such device"):
        procs.initialized.get(LIMIT_S)


def test_a_bootstrap_and_an_environment_are_a_new_process_s_too(one, tmp_path):
    def prepare() -> None:
        (tmp_path / f"prepared.{context().proc.incarnation}").touch()

    procs = one.host(0).spawn_procs({"r": 1}, prepare, "w", env={"MINE": "yes"})
    workers = procs.spawn("worker", Worker, restart=Restart())
    os.kill(answers(workers, 0)[0], signal.SIGKILL)
    until(lambda: answers(workers, 0)[1] == 1)
    prepared = sorted(path.name for path in tmp_path.glob("prepared.*"))
    assert prepared == ["prepared.0", "prepared.1"]
    assert workers.slice(r=0).variable.call_one("MINE").get(LIMIT_S) == "yes"


def test_a_nursery_that_dies_with_a_worker_holds_up_no_restart(one, procs):
    workers = procs.spawn("worker", Worker, restart=Restart())
    pid = answers(workers, 0)[0]
    os.kill(one.nursery_pid(0), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    until(lambda: answers(workers, 0)[1] == 1)
    assert not one.has_failed


def test_an_actor_whose_process_came_up_late_is_made_once_and_has_all_that_was_sent(one, tmp_path):
    def prepare() -> None:
        if context().proc.incarnation < 2:
            raise RuntimeError("not yet")

    procs = one.host(0).spawn_procs({"r": 1}, prepare, "w")
    workers = procs.spawn("worker", Worker, tmp_path, restart=Restart())
    counted = [workers.slice(r=0).count.call_one() for _ in range(5)]
    assert [count.get(LIMIT_S) for count in counted] == [1, 2, 3, 4, 5]
    assert answers(workers, 0)[1] == 2
    assert workers.slice(r=0).count.call_one().get(LIMIT_S) == 6  # nothing began anew meanwhile
    assert len(list(tmp_path.glob("made.*"))) == 1
    procs.initialized.get(LIMIT_S)
    assert not one.has_failed
