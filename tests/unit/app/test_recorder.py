"""What a worker says of itself while it trains."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from danaus.app.recorder import Recorder
from danaus.app.run_folder import RunFolder
from danaus.ft.place import Place
from danaus.quorum.messages import Epoch
from danaus.train.checkpoint import Written
from danaus.wire.position import Phase, PositionBlock


class Work:
    """Notes where the worker stands while it writes a checkpoint; one is due after step 2."""

    last_result = None

    def __init__(self, position: PositionBlock) -> None:
        self.position = position
        self.seen: list[tuple[int, Phase]] = []

    def checkpoint_is_due(self, step: int) -> bool:
        return step == 2

    def checkpoint(self, step: int, epoch: Epoch) -> Written:
        at = self.position.read()
        self.seen.append((at.step, at.phase))
        return Written(step, complete=True)


@pytest.fixture
def position(tmp_path):
    block = PositionBlock.create(tmp_path / "position")
    yield block
    block.close()


def test_a_checkpoint_is_a_phase_of_its_own(tmp_path, position):
    work = Work(position)
    place = Place("replica-0", 0, 1, 0, "", "", "")
    with Recorder(place, work, RunFolder(tmp_path), position=position) as recorder:
        for step in (1, 2):
            recorder.entered(step, Phase.APPLY, 0)
            line = SimpleNamespace(step=step, epoch=Epoch(1, 1), leaves={"replica-0": (0,)})
            recorder.committed(line, None)
    assert work.seen == [(2, Phase.CHECKPOINT)]
