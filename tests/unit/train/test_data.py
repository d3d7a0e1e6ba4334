"""Samples are a function of seed, step and microbatch, and each comes once per data epoch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from danaus.core.errors import ConfigError, InternalError
from danaus.train.config import DataConfig
from danaus.train.data import ByteText
from danaus.train.text import STDLIB_BYTES, BatchShape, find_files

SHAPE = BatchShape(num_microbatches=3, rows=2, seq_len=4)


def text_of(path: Path, seed: int = 1, shape: BatchShape = SHAPE) -> ByteText:
    return ByteText(DataConfig(path=str(path)), shape, seed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(bytes(range(41)))  # 10 windows of 4, and the target of the last
    return path


def test_each_sample_comes_once_per_data_epoch(file: Path) -> None:
    text = text_of(file)
    assert text.num_windows == 10
    ids = [sample for step in range(1, 6) for m in range(3) for sample in text.sample_ids(step, m)]
    assert len(ids) == 30
    assert sorted(ids) == list(range(30))
    orders = [[sample % 10 for sample in ids[start : start + 10]] for start in (0, 10, 20)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_a_batch_is_a_function_of_its_arguments(file: Path) -> None:
    a, b = text_of(file), text_of(file)
    b.batch(4, 2)
    for step, m in ((1, 0), (4, 2), (2, 1)):
        for x, y in zip(a.batch(step, m)[:2], b.batch(step, m)[:2], strict=True):
            assert torch.equal(x, y)
    assert a.sample_ids(1, 0) != text_of(file, seed=2).sample_ids(1, 0)


def test_the_order_of_a_seed_is_fixed_for_ever(file: Path) -> None:
    text = text_of(file)
    assert [text.sample_ids(1, m) for m in range(3)] == [(0, 1), (3, 7), (9, 6)]


def test_targets_are_the_bytes_that_follow(file: Path) -> None:
    tokens, targets, ids = text_of(file).batch(1, 0)
    assert tokens.shape == targets.shape == (2, 4)
    assert tokens.dtype == torch.int64
    for row, sample in enumerate(ids):
        assert tokens[row].tolist() == list(range(4 * sample, 4 * sample + 4))
        assert targets[row].tolist() == list(range(4 * sample + 1, 4 * sample + 5))


def test_a_folder_is_read_by_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "z/c.txt", "m/d.txt", ".hidden/e.txt", "__pycache__/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name * 20)
    files = [str(p.relative_to(tmp_path)) for p in find_files(DataConfig(path=str(tmp_path)))]
    assert files == ["a.txt", "b.txt", "m/d.txt", "z/c.txt"]
    only = DataConfig(path=str(tmp_path), pattern="[ad].txt")
    assert [p.name for p in find_files(only)] == ["a.txt", "d.txt"]


def test_reading_stops_at_its_limit(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 20)
    text = ByteText(DataConfig(path=str(tmp_path), max_bytes=30), SHAPE, 1)
    assert text.num_windows == 7
    assert text.source == f"{tmp_path}, 30 bytes of 2 files"


def test_the_standard_library_is_text_enough() -> None:
    text = ByteText(DataConfig(), BatchShape(num_microbatches=8, rows=2, seq_len=128), 1)
    assert text.num_windows == (STDLIB_BYTES - 1) // 128
    tokens, _, _ = text.batch(1, 0)
    assert int(tokens.max()) < 256
    again = ByteText(DataConfig(), BatchShape(num_microbatches=8, rows=2, seq_len=128), 1)
    assert again.digest == text.digest


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; name a file"):
        text_of(tmp_path / "nowhere")


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is empty: a file; name a file"):
        text_of(tmp_path)


def test_a_folder_without_a_match(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(ConfigError, match=r"is empty: a file that matches '\*\.md'"):
        ByteText(DataConfig(path=str(tmp_path), pattern="*.md"), SHAPE, 1)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ConfigError, match="holds no text"):
        text_of(tmp_path / "a")


def test_too_little_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 24)
    with pytest.raises(ConfigError, match="one step reads 6 windows of 4"):
        text_of(tmp_path / "a")


def test_a_microbatch_that_is_none(file: Path) -> None:
    for step, m in ((0, 0), (1, 3), (1, -1)):
        with pytest.raises(InternalError):
            text_of(file).sample_ids(step, m)
