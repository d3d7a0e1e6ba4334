"""H-5: the training gives a copy away and goes on; the disk takes the time that it takes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from danaus.core.clock import Deadline
from danaus.ft.saving import SaveNote, SavePlan
from danaus.ft.snapshot import SnapshotRoom
from danaus.quorum.messages import MemberId
from danaus.testing.clock import ManualClock
from danaus.train import checkpoint_file
from danaus.train.checkpoint import Checkpoints, Writer, Written
from danaus.train.saver import Saver

ME = MemberId("r0", 0, 0)
PLAN = SavePlan(every_steps=2, last_step=20)


def state(step: int) -> dict[str, Tensor]:
    return {"w": torch.full((64,), float(step)), "n": torch.tensor([step])}


def writer(step: int) -> Writer:
    return Writer("r0", (1, 1), fingerprint=f"f{step}")


class Disk:
    """Holds every sync up until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sync = os.fsync
        self._open, self.waiting = threading.Event(), threading.Event()
        self.error: OSError | None = None
        monkeypatch.setattr(checkpoint_file.os, "fsync", self.fsync)
        self._open.set()

    def fsync(self, descriptor: int) -> None:
        self.waiting.set()
        assert self._open.wait(30)
        if self.error is not None:
            raise self.error
        self._sync(descriptor)

    def block(self) -> None:
        self.waiting.clear()
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()


class Told(list[Written]):
    def until(self, number: int) -> list[Written]:
        deadline = Deadline.after(30)
        while len(self) < number and not deadline.passed:
            threading.Event().wait(0.005)
        assert len(self) == number
        return list(self)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.go_on()


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", identity="this run", keep=2)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def make(checkpoints: Checkpoints, told: Told) -> Iterator[Callable[..., Saver]]:
    made: list[Saver] = []

    def build(room_bytes: int = 1 << 20, plan: SavePlan = PLAN, **more: object) -> Saver:
        saver = Saver(ME, checkpoints, plan, room=SnapshotRoom(room_bytes), **more)
        saver.tell = told.append
        made.append(saver)
        return saver

    yield build
    for saver in made:
        saver.close()


def vote(saver: Saver, step: int, fingerprint: str) -> None:
    """All members vote on ``step`` with this fingerprint of the state before it."""
    saver.voted(step, {fingerprint}, {ME: saver.note(step)})


def test_what_is_written_is_the_state_at_the_boundary(make, checkpoints, told, disk) -> None:
    saver, live = make(), state(2)
    disk.block()
    assert saver.save(2, live, writer(2))
    assert disk.waiting.wait(30)
    live["w"].fill_(99.0)  # the next step is applied meanwhile
    vote(saver, 3, "f2")
    assert checkpoints.latest_valid() == 0
    disk.go_on()
    assert told.until(1) == [Written(2, complete=True)]
    tensors, fingerprint = checkpoints.read(2)
    assert fingerprint == "f2"
    assert torch.equal(tensors["w"], state(2)["w"])


@pytest.mark.parametrize("written_first", [True, False])
def test_the_vote_may_come_before_or_after_the_disk(
    make, checkpoints, told, disk, written_first
) -> None:
    saver = make()
    if not written_first:
        disk.block()
    saver.save(2, state(2), writer(2))
    if written_first:
        part = checkpoints.folder / ".writing-000002-1.1-r0" / "rank-0-of-1.safetensors"
        deadline = Deadline.after(30)
        while not part.exists() and not deadline.passed:
            threading.Event().wait(0.005)
        assert part.exists()
        assert checkpoints.latest_sound() == 0, "no vote has said of which state it is"
    assert saver.note(99).complete == 0
    vote(saver, 3, "f2")
    disk.go_on()
    assert told.until(1) == [Written(2, complete=True)]
    assert checkpoints.latest_valid() == saver.note(99).complete == 2


def test_one_of_another_state_never_gets_its_name(make, checkpoints, told) -> None:
    saver = make()
    saver.save(2, state(2), writer(2))
    vote(saver, 3, "f-other")
    (written,) = told.until(1)
    assert not written.complete
    assert "fingerprint f2, all members have f-other" in written.reason
    assert not list(checkpoints.folder.iterdir())


def test_while_members_differ_it_waits_and_it_ends_with_votes_that_did_not_come(
    make, checkpoints, told
) -> None:
    saver = make()
    saver.save(2, state(2), writer(2))
    saver.voted(3, {"f2", "f-other"}, {ME: saver.note(3)})
    assert saver.note(99).busy
    saver.voted(4, {"f3"}, {ME: saver.note(4)})  # step 3 was committed by an announcement
    (written,) = told.until(1)
    assert "did not all come" in written.reason
    assert not list(checkpoints.folder.iterdir())


def test_a_due_one_is_skipped_while_the_disk_is_slow(make, told, disk) -> None:
    saver = make()
    disk.block()
    saver.save(2, state(2), writer(2))
    vote(saver, 3, "f2")
    assert saver.decision(3) == "no"
    vote(saver, 4, "f3")
    assert saver.decision(4) == "skip"
    disk.go_on()
    assert told.until(1) == [Written(2, complete=True)]
    vote(saver, 6, "f5")
    assert saver.decision(6) == "save"


def test_what_votes_do_not_tell_is_decided_alone(make) -> None:
    saver = make()
    assert [saver.decision(step) for step in (1, 2, 3)] == ["no", "save", "no"]


def test_a_full_disk_is_told_and_the_next_one_is_written(make, checkpoints, told, disk) -> None:
    saver = make()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    saver.save(2, state(2), writer(2))
    (failed,) = told.until(1)
    assert not failed.complete
    assert "No space left" in failed.reason
    assert not list(checkpoints.folder.iterdir())
    disk.error = None
    saver.save(4, state(4), writer(4))
    vote(saver, 5, "f4")
    assert told.until(2)[1] == Written(4, complete=True)


def test_without_room_for_a_copy_it_is_written_at_once(make, checkpoints, told) -> None:
    saver, live = make(room_bytes=0), state(2)
    assert not saver.save(2, live, writer(2))
    live["w"].fill_(99.0)
    vote(saver, 3, "f2")
    assert told.until(1) == [Written(2, complete=True)]
    assert torch.equal(checkpoints.read(2)[0]["w"], state(2)["w"])


@pytest.mark.parametrize("agreed", [False, True])
def test_what_is_being_written_as_the_run_goes_back_is_void(
    make, checkpoints, told, disk, agreed
) -> None:
    saver = make()
    disk.block()
    saver.save(6, state(6), writer(6))
    if agreed:
        vote(saver, 7, "f6")
    assert disk.waiting.wait(30)
    saver.reset(4)
    disk.go_on()
    checkpoints.drop_after(4, 2)
    (written,) = told.until(1)
    assert (written.complete, written.reason) == (False, "the run goes back to step 4")
    assert checkpoints.latest_sound() == 0
    assert saver.note(99).complete == 4


def test_a_replica_that_learned_drops_only_what_no_vote_has_settled(
    make, checkpoints, told
) -> None:
    saver = make()
    saver.save(2, state(2), writer(2))
    saver.relearned()
    (written,) = told.until(1)
    assert "has learned its state" in written.reason
    assert checkpoints.latest_sound() == 0


def test_what_others_know_to_be_complete_is_passed_on(make) -> None:
    saver, other = make(), MemberId("r1", 0, 0)
    saver.voted(3, {"f2"}, {ME: saver.note(3), other: SaveNote(complete=2)})
    assert saver.note(99).complete == 2


def test_the_last_waits_for_the_one_before(make, checkpoints, told, disk) -> None:
    saver = make()
    disk.block()
    saver.save(18, state(18), writer(18))
    vote(saver, 19, "f18")
    waits: list[int] = []

    def wait() -> None:
        waits.append(1)
        disk.go_on()

    assert saver.save_last(20, state(20), writer(20), on_wait=wait) == Written(20, complete=True)
    assert waits
    assert told.until(1) == [Written(18, complete=True)]
    assert checkpoints.latest_valid() == 20


def test_the_last_step_counts_once_all_have_ended_with_it(make, checkpoints, told) -> None:
    saver = make()
    saver.save_unseen(20, state(20), writer(20), on_wait=lambda: None)
    assert checkpoints.latest_sound() == 0, "nobody has said that the others have the same"
    written = saver.save_last(20, state(20), writer(20), on_wait=lambda: None)
    assert written == Written(20, complete=True)
    assert not told
    assert checkpoints.latest_valid() == 20


def test_the_last_step_of_one_that_was_wrong_leaves_nothing(make, checkpoints, told) -> None:
    saver = make()
    saver.save_unseen(20, state(20), writer(20), on_wait=lambda: None)
    saver.relearned()  # the others have outvoted it
    (written,) = told.until(1)
    assert "has learned its state" in written.reason
    assert checkpoints.latest_sound() == 0
    right = saver.save_last(20, state(20), writer(20), on_wait=lambda: None)
    assert right == Written(20, complete=True)


def test_the_last_step_waits_for_the_one_before(make, checkpoints, told, disk) -> None:
    saver = make()
    disk.block()
    saver.save(18, state(18), writer(18))
    vote(saver, 19, "f18")
    saver.save_unseen(20, state(20), writer(20), on_wait=disk.go_on)
    assert told.until(1) == [Written(18, complete=True)]
    assert checkpoints.latest_sound() == 18


def test_whoever_leaves_ends_what_it_is_writing_of_its_last_step(make, checkpoints, told) -> None:
    saver = make()
    saver.save(4, state(4), writer(4))
    written = saver.save_last(4, state(4), writer(4), on_wait=lambda: None)
    assert written == Written(4, complete=True)
    assert not told, "whoever waited for it tells of it"
    assert checkpoints.latest_valid() == 4


def test_time_and_cost_are_measured(make, disk) -> None:
    clock = ManualClock()
    saver = make(plan=SavePlan(every_s=100.0, last_step=99), clock=clock)
    clock.advance(100.0)
    assert saver.note(3).idle_s == 100.0
    vote(saver, 3, "f2")  # in vain: the step is tried again
    clock.advance(1.0)
    vote(saver, 3, "f2")
    assert saver.decision(3) == "save"
    clock.advance(2.0)
    assert saver.note(4).idle_s == 2.0


def test_whoever_ends_leaves_no_thread_and_nothing_half(make, checkpoints, told) -> None:
    saver = make()
    saver.save(2, state(2), writer(2))
    saver.close()
    (written,) = told.until(1)
    assert written.reason == "the process ends"
    assert not list(checkpoints.folder.iterdir())
    assert "danaus checkpoint" not in {thread.name for thread in threading.enumerate()}
