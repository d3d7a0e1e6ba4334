"""H-5: a checkpoint is whole or it is not there, and only whole ones are believed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from danaus.core.errors import CheckpointDamaged, ConfigError
from danaus.ft.snapshot import SnapshotRoom
from danaus.train.checkpoint import Checkpoints, Writer, Written
from danaus.train.checkpoint_file import Part

STEP = "step-000100"
PART = "rank-0-of-1.safetensors"


def state(step: int, rank: int = 0) -> dict[str, Tensor]:
    return {
        "model.w": torch.arange(24, dtype=torch.float32).view(4, 6) + step + 1000 * rank,
        "model.none": torch.empty(0, 3),
        "progress.step": torch.tensor([step]),
    }


def writer(name: str = "r0", term: int = 1, rank: int = 0, num_ranks: int = 1) -> Writer:
    return Writer(name=name, epoch=(term, 3), rank=rank, num_ranks=num_ranks)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", identity="this run", keep=2)


def names(checkpoints: Checkpoints) -> list[str]:
    visible = (path.name for path in checkpoints.folder.iterdir() if ".void" not in path.name)
    return sorted(visible)


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert tensor.dtype == b[name].dtype
        assert torch.equal(tensor, b[name])


def test_what_was_written_is_read(checkpoints: Checkpoints) -> None:
    assert checkpoints.latest_valid() == 0
    assert checkpoints.write(100, state(100), writer()).complete
    assert names(checkpoints) == [STEP]
    assert checkpoints.latest_valid() == 100
    assert_same(checkpoints.read(100)[0], state(100))


def test_every_rank_must_have_written(checkpoints: Checkpoints) -> None:
    first = checkpoints.write(100, state(100, 1), writer(rank=1, num_ranks=2))
    assert (first.complete, first.reason) == (False, "")
    assert checkpoints.latest_valid() == 0
    assert checkpoints.write(100, state(100, 0), writer(rank=0, num_ranks=2)).complete
    for rank in (0, 1):
        assert_same(checkpoints.read(100, rank=rank, num_ranks=2)[0], state(100, rank))
    with pytest.raises(CheckpointDamaged, match="no rank-0-of-1"):
        checkpoints.read(100)


def test_parts_of_two_replicas_never_mix(checkpoints: Checkpoints) -> None:
    checkpoints.write(100, state(100, 0), writer("r0", rank=0, num_ranks=2))
    assert not checkpoints.write(100, state(100, 1), writer("r1", rank=1, num_ranks=2)).complete
    assert checkpoints.latest_valid() == 0


def test_losing_the_race_is_as_good(checkpoints: Checkpoints) -> None:
    assert checkpoints.write(100, state(100), writer("r0")).complete
    assert checkpoints.write(100, state(100), writer("r1")).complete
    assert names(checkpoints) == [STEP]


def test_a_later_term_replaces_an_earlier_one(checkpoints: Checkpoints) -> None:
    checkpoints.write(100, state(100), writer(term=2))
    checkpoints.write(100, state(7), writer(term=3))
    assert_same(checkpoints.read(100)[0], state(7))
    checkpoints.write(100, state(8), writer(term=1))  # a fenced writer's take no effect
    assert_same(checkpoints.read(100)[0], state(7))


def truncate(folder: Path) -> None:
    os.truncate(folder / PART, (folder / PART).stat().st_size - 1)


def flip(name: str, place: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = bytearray((folder / name).read_bytes())
        raw[place] ^= 1
        (folder / name).write_bytes(raw)

    return change


def lose(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


DAMAGES = {
    "truncated": truncate,
    "a flipped byte": flip(PART, -5),
    "a flipped byte in its header": flip(PART, 20),
    "a missing file": lose(PART),
    "a missing manifest": lose("manifest.json"),
    "a flipped byte in the manifest": flip("manifest.json", 60),
    "a manifest that is no text": flip("manifest.json", 0),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_one_is_skipped_and_written_anew(
    checkpoints: Checkpoints, damage: Callable[[Path], None]
) -> None:
    for step in (50, 100):
        checkpoints.write(step, state(step), writer())
    damage(checkpoints.folder / STEP)
    assert checkpoints.latest_valid() == 50
    with pytest.raises(CheckpointDamaged):
        checkpoints.read(100)
    checkpoints.drop_after(50, 2)
    assert names(checkpoints) == ["step-000050"]
    assert checkpoints.write(100, state(100), writer(term=2)).complete
    assert checkpoints.latest_valid() == 100


@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
def test_a_full_disk_is_an_answer(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    checkpoints.write(50, state(50), writer())

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os if call != "rename" else Path, call, refuse)
        answer = checkpoints.write(100, state(100), writer())
    assert not answer.complete
    assert "No space left" in answer.reason
    assert names(checkpoints) == ["step-000050"]
    assert checkpoints.latest_valid() == 50
    assert checkpoints.write(100, state(100), writer()).complete


def test_the_newest_are_kept_and_leftovers_go(checkpoints: Checkpoints) -> None:
    (checkpoints.folder / ".writing-000040-1.1-r2").mkdir(parents=True)
    (checkpoints.folder / "notes.txt").write_text("someone's own")
    for step in (50, 100, 150, 200):
        checkpoints.write(step, state(step), writer())
    assert names(checkpoints) == ["notes.txt", "step-000150", "step-000200"]


def test_damaged_ones_do_not_count_as_kept(checkpoints: Checkpoints) -> None:
    for step in (50, 100, 150):
        checkpoints.write(step, state(step), writer())
    truncate(checkpoints.folder / "step-000150")
    checkpoints.prune()
    assert checkpoints.latest_valid() == 100
    checkpoints.write(200, state(200), writer())
    assert names(checkpoints) == [STEP, "step-000200"]


def test_another_runs_are_refused_and_left_alone(checkpoints: Checkpoints) -> None:
    checkpoints.write(100, state(100), writer())
    other = Checkpoints(checkpoints.folder, identity="other", keep=1)
    assert other.latest_valid() == 0
    with pytest.raises(ConfigError, match="other settings"):
        other.read(100)
    other.write(150, state(150), writer())
    other.write(200, state(200), writer())
    assert names(checkpoints) == [STEP, "step-000200"]


def test_who_restores_late_removes_nothing_of_those_that_are_ahead(
    checkpoints: Checkpoints,
) -> None:
    for step in (50, 100):
        checkpoints.write(step, state(step), writer())
    checkpoints.drop_after(50, 2)
    assert names(checkpoints) == ["step-000050"]
    checkpoints.write(100, state(100), writer(term=2))
    checkpoints.drop_after(50, 2)
    assert names(checkpoints) == ["step-000050", STEP]
    checkpoints.drop_after(50, 3)
    assert names(checkpoints) == ["step-000050"]


def test_another_runs_are_left_alone_by_whoever_goes_back(checkpoints: Checkpoints) -> None:
    checkpoints.write(100, state(100), writer())
    Checkpoints(checkpoints.folder, identity="other").drop_after(0, 2)
    assert checkpoints.latest_valid() == 100


def test_what_comes_late_of_before_the_run_went_back_is_void(checkpoints: Checkpoints) -> None:
    for step in (50, 100):
        checkpoints.write(step, state(step), writer())
    checkpoints.drop_after(50, 2)
    # A writer that was cut off, and knows nothing of it.
    assert checkpoints.write(150, state(150), writer()).complete
    assert (checkpoints.latest_sound(), checkpoints.latest_valid()) == (50, 50)
    assert checkpoints.write(150, state(7), writer(term=2)).complete
    assert_same(checkpoints.read(150)[0], state(7))
    assert checkpoints.latest_sound() == 150


def test_marks_of_a_service_that_is_forgotten_void_nothing(checkpoints: Checkpoints) -> None:
    checkpoints.write(50, state(50), writer(term=3))
    checkpoints.drop_after(50, 4)
    checkpoints.drop_after(50, 1)  # its successor lost all that it knew
    checkpoints.write(100, state(100), writer(term=1))
    assert checkpoints.latest_sound() == 100


def test_a_part_counts_only_once_it_is_finished(checkpoints: Checkpoints) -> None:
    lent = SnapshotRoom(0).take(state(100), 100, note="", fingerprint="", on_served=None)
    part = checkpoints.write_part(100, lent, writer())
    assert isinstance(part, Part)
    assert checkpoints.latest_sound() == 0
    assert checkpoints.finish(100, part, writer()).complete
    assert_same(checkpoints.read(100)[0], state(100))


def test_a_part_that_nobody_wants_any_more_is_given_up(checkpoints: Checkpoints) -> None:
    lent = SnapshotRoom(0).take(state(100), 100, note="", fingerprint="", on_served=None)
    given_up = checkpoints.write_part(100, lent, writer(), stop=lambda: True)
    assert given_up == Written(100, False, "nobody wants it any more")
    assert names(checkpoints) == []


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64]
)
def test_tensors_of_every_kind_are_read_as_they_were(
    checkpoints: Checkpoints, dtype: torch.dtype
) -> None:
    odd = {"a": torch.arange(15).view(3, 5).to(dtype), "b": torch.arange(24.0).view(4, 6).t()}
    checkpoints.write(100, odd, writer())
    assert_same(checkpoints.read(100)[0], odd)


def test_a_folder_taken_away_by_another_is_an_answer(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> bool:
        raise FileNotFoundError(errno.ENOENT, "gone")

    monkeypatch.setattr(checkpoints, "_finish", gone)
    answer = checkpoints.write(100, state(100), writer())
    assert (answer.complete, answer.reason) == (False, "its folder was taken away")
