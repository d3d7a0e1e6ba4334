"""What a worker says of itself while it trains."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from danaus.app.events import Event
from danaus.app.recorder import Recorder
from danaus.app.run_folder import RunFolder
from danaus.core.journal import read
from danaus.ft.place import Place
from danaus.quorum.messages import Epoch
from danaus.train.checkpoint import Written
from danaus.wire.position import Phase, PositionBlock


class Work:
    """Notes where the worker stands while it takes a checkpoint; one is due after step 2."""

    last_result = None
    checkpoint_room_bytes = 7

    def __init__(self, position: PositionBlock, beside: bool = True) -> None:
        self.position, self.beside = position, beside
        self.seen: list[tuple[int, Phase]] = []

    def on_checkpoint(self, tell) -> None:
        self.tell = tell

    def checkpoint_decision(self, step: int) -> str:
        return {2: "save", 4: "save", 6: "skip", 8: "save"}.get(step, "no")

    last_step = 8

    def checkpoint(self, step: int, epoch: Epoch, fingerprint: str) -> bool:
        self.look(fingerprint)
        return self.beside

    def checkpoint_last(self, step: int, epoch: Epoch, fingerprint: str, *, on_wait) -> None:
        on_wait()
        self.look(fingerprint)

    def fingerprint(self) -> str:
        return "now"

    def checkpoint_now(self, step: int, epoch: Epoch, fingerprint: str, *, on_wait) -> Written:
        on_wait()
        self.look(fingerprint)
        return Written(step, complete=True)

    def look(self, fingerprint: str) -> None:
        at = self.position.read()
        self.seen.append((at.step, at.phase, at.collective, fingerprint))

    def close(self) -> None:
        self.tell(Written(2, complete=True))
        self.tell(Written(4, False, "the disk is full"))
        self.tell(Written(5, False))


@pytest.fixture
def position(tmp_path):
    block = PositionBlock.create(tmp_path / "position")
    yield block
    block.close()


def run(tmp_path, work, steps):
    place = Place("replica-0", 0, 1, 0, "", "", "")
    folder = RunFolder(tmp_path)
    with Recorder(place, work, folder, position=work.position) as recorder:
        for step in steps:
            recorder.entered(step, Phase.APPLY, 0)
            line = SimpleNamespace(
                step=step, epoch=Epoch(1, 1), leaves={"replica-0": (0,)}, fingerprint=f"f{step}"
            )
            recorder.committed(line, None)
    return read(folder.journal_path)


def test_a_checkpoint_is_a_phase_of_its_own(tmp_path, position):
    work = Work(position)
    run(tmp_path, work, (1, 2, 8))
    assert work.seen == [(2, Phase.CHECKPOINT, 0, "f2"), (8, Phase.CHECKPOINT, 1, "f8")]


@pytest.mark.parametrize(("save", "counts"), [(True, [Event.CHECKPOINT_WRITTEN]), (False, [])])
def test_the_last_step_counts_once_the_run_has_ended_with_it(tmp_path, position, save, counts):
    work = Work(position)
    work.close = lambda: None
    folder = RunFolder(tmp_path)
    place = Place("replica-0", 0, 1, 0, "", "", "")
    with Recorder(place, work, folder, position=position) as recorder:
        recorder.finished(7, Epoch(1, 1), save=save)  # it came too late for the last step
        recorder.finished(8, None, save=save)  # it was restored: it is on the disk
        assert not read(folder.journal_path)
        recorder.finished(8, Epoch(1, 1), save=save)
    assert [line["event"] for line in read(folder.journal_path)] == counts


def test_what_becomes_of_checkpoints_is_written_down(tmp_path, position):
    lines = run(tmp_path, Work(position), (2, 6))
    assert [(line["event"], line["step"]) for line in lines] == [
        (Event.CHECKPOINT_SKIPPED, 6),
        (Event.CHECKPOINT_WRITTEN, 2),
        (Event.CHECKPOINT_FAILED, 4),
    ]
    assert (lines[2]["rank"], lines[2]["reason"]) == (0, "the disk is full")


def test_that_there_is_no_room_for_a_copy_is_said_once(tmp_path, position):
    lines = run(tmp_path, Work(position, beside=False), (2, 4))
    (said,) = [line for line in lines if line["event"] == Event.CHECKPOINT_IN_LINE]
    assert said["step"] == 2
    assert "no room for a copy of its state in 7 bytes" in said["reason"]
