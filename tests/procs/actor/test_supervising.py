"""Who is told of failures, three owners deep, while everybody is busy (A-6, A-7, A-8)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from danaus.actor import (
    Actor,
    ActorError,
    MeshFailure,
    concurrent_endpoint,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)

LIMIT_S = 20.0


class Leaf(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def raise_error(self, text: str) -> None:
        raise ValueError(text)


class Broken(Actor):
    def __init__(self) -> None:
        raise RuntimeError("cannot be made")


class Owner(Actor):
    """Spawns what it is told to, in a process of its own, and supervises as it is told to."""

    def __init__(
        self, level: int, answer: str, inner: tuple[type[Actor], tuple[object, ...]]
    ) -> None:
        self.answer = answer
        self.told: list[str] = []
        self.was_told = threading.Event()
        cls, args = inner
        self.procs = this_host().spawn_procs(name=f"procs{level}")
        self.inner = self.procs.spawn(f"actor{level}", cls, *args).slice(hosts=0)

    @endpoint
    def get_inner(self):
        return self.inner

    @concurrent_endpoint
    def wait_until_told(self) -> list[str]:
        assert self.was_told.wait(LIMIT_S)
        return self.told

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.told.append(f"{failure.mesh} {failure.kind}")
        self.was_told.set()
        if self.answer == "raises":
            raise KeyError("no idea what to do")
        return self.answer == "handles"


class AsyncOwner(Actor):
    """Awaits something for ever, until its supervision ends that."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.failure: MeshFailure | None = None

    @endpoint
    async def own(self) -> int:
        procs = this_host().spawn_procs(name="inner")
        leaf = procs.spawn("leaf", Leaf).slice(hosts=0)
        pid = await leaf.pid.call_one()
        self.leaf = leaf
        return pid

    @endpoint
    async def wait_for_failure(self) -> str:
        await self.told.wait()
        return f"{self.failure.kind} {self.failure.signal}"

    async def __supervise__(self, failure: MeshFailure) -> bool:
        await asyncio.sleep(0)
        self.failure = failure
        self.told.set()
        return True


class AsyncRaiser(AsyncOwner):
    async def __supervise__(self, failure: MeshFailure) -> bool:
        await asyncio.sleep(0)
        raise KeyError("no idea what to do")


class Untidy(Actor):
    @endpoint
    def rank(self) -> int:
        return current_rank().rank

    def __cleanup__(self, exc: BaseException | None) -> None:
        if current_rank().rank == 1:
            raise OSError("the disk is gone")


class UntidyLater(Untidy):
    async def __cleanup__(self, exc: BaseException | None) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().__cleanup__(exc)


def nested(one, *answers: str):
    """Owners from the outermost in, each in a process of its own, and the leaf (level 3)."""
    inner: tuple[type[Actor], tuple[object, ...]] = (Leaf, ())
    for level, answer in reversed(list(enumerate(answers, 1))):
        inner = (Owner, (level, answer, inner))
    cls, args = inner
    outermost = one.host(0).spawn_procs(name="top").spawn("top", cls, *args)
    owners = [outermost]
    for _ in answers[1:]:
        owners.append(owners[-1].get_inner.call_one().get(LIMIT_S))
    return owners, owners[-1].get_inner.call_one().get(LIMIT_S)


def kill(leaf) -> None:
    os.kill(leaf.pid.call_one().get(LIMIT_S), signal.SIGKILL)


def test_a_failure_climbs_until_somebody_handles_it(one):
    (top, middle, low), leaf = nested(one, "handles", "passes", "passes")
    kill(leaf)
    said = ["procs3 signal"]
    assert low.wait_until_told.call_one().get(LIMIT_S) == said
    assert middle.wait_until_told.call_one().get(LIMIT_S) == said
    assert top.wait_until_told.call_one().get(LIMIT_S) == said
    assert not one.has_failed


def test_whoever_handles_it_keeps_it_from_those_above(one):
    (top, middle, low), leaf = nested(one, "passes", "passes", "handles")
    kill(leaf)
    assert low.wait_until_told.call_one().get(LIMIT_S) == ["procs3 signal"]
    for owner in (top, middle):  # both answer, and neither was told
        assert owner.get_inner.call_one().get(LIMIT_S) is not None
        with pytest.raises(TimeoutError):
            owner.wait_until_told.call_one().get(0.1)
    assert not one.has_failed


def test_what_nobody_handles_reaches_the_program_as_it_was(one):
    _, leaf = nested(one, "passes", "passes", "passes")
    kill(leaf)
    failure = one.failure()
    assert (failure.mesh, failure.kind, failure.signal) == ("procs3", "signal", "SIGKILL")
    assert failure.cause is None


def test_each_supervisor_that_raises_puts_its_own_failure_on_top(one):
    _, leaf = nested(one, "raises", "passes", "raises")
    leaf.raise_error.broadcast("the first cause")
    failure = one.failure()
    below = failure.cause
    assert (failure.mesh, below.mesh) == ("top", "actor2")
    assert "no idea what to do" in failure.reason
    assert below.cause.mesh == "actor3"
    lines = failure.report().splitlines()
    assert lines[0].endswith("failed (exception): ValueError: the first cause")
    assert [line for line in lines if line.startswith("which led to: ")][-1].startswith(
        "which led to: top["
    )
    assert len(lines) <= 45


def test_async_supervision_that_raises_puts_its_own_failure_on_top_too(one):
    owner = one.host(0).spawn_procs(name="top").spawn("owner", AsyncRaiser)
    os.kill(owner.own.call_one().get(LIMIT_S), signal.SIGKILL)
    failure = one.failure()
    assert failure.mesh == "owner"
    assert "no idea what to do" in failure.reason
    assert failure.cause.signal == "SIGKILL"


def test_a_constructor_that_raises_deep_below_is_told_all_the_way_up(one):
    owner = one.host(0).spawn_procs(name="top").spawn("top", Owner, 1, "passes", (Broken, ()))
    failure = one.failure()
    assert failure.mesh == "actor1"
    assert "cannot be made" in failure.reason
    assert owner.wait_until_told.call_one().get(LIMIT_S) == ["actor1 exception"]


def test_supervision_runs_while_the_actor_awaits_something_else(one):
    owner = one.host(0).spawn_procs(name="top").spawn("owner", AsyncOwner)
    pid = owner.own.call_one().get(LIMIT_S)
    waiting = owner.wait_for_failure.call_one()
    os.kill(pid, signal.SIGKILL)
    assert waiting.get(LIMIT_S) == "signal SIGKILL"
    assert not one.has_failed


def test_supervision_of_an_owner_in_this_program_too(one):
    owner = this_proc().spawn("owner", AsyncOwner)
    os.kill(owner.own.call_one().get(LIMIT_S), signal.SIGKILL)
    assert owner.wait_for_failure.call_one().get(LIMIT_S) == "signal SIGKILL"
    assert not one.has_failed


@pytest.mark.parametrize("cls", [Untidy, UntidyLater])
def test_a_cleanup_that_raises_is_told_to_who_stops_and_stops_nobody_else(one, cls):
    procs = one.host(0).spawn_procs({"r": 3}, name="w")
    untidy = procs.spawn("untidy", cls)
    untidy.rank.call().get(LIMIT_S)
    with pytest.raises(ActorError, match=r"__cleanup__ raised OSError: the disk is gone"):
        untidy.stop().get(LIMIT_S)
    assert procs.spawn("leaf", Leaf).slice(r=1).pid.call_one().get(LIMIT_S) > 0
    again = procs.spawn("untidy", cls)
    again.rank.call().get(LIMIT_S)
    procs.stop().get(LIMIT_S)
    assert "OSError: the disk is gone" in one.log("host0-w-1#0")
    assert not one.has_failed
