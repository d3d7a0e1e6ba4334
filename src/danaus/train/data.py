"""Text as bytes: which samples every microbatch of every step is made of.

Owns ``ByteText`` and how it finds its files.  A sample is a window of bytes; a data epoch is one
pass over all windows in an order drawn from the seed.  Where a microbatch reads is a function of
``(seed, step, microbatch)`` alone (T-2, T-3): there is no position to keep, save or undo.
Steps count from 1: step ``s`` turns the state after ``s - 1`` steps into that after ``s``.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from danaus.core.errors import ConfigError, InternalError
from danaus.model.initial import draw_seed
from danaus.train.config import DataConfig, StepConfig

STDLIB_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """The constant global batch: ``num_microbatches`` of ``rows`` windows of ``seq_len``."""

    num_microbatches: int
    rows: int
    seq_len: int


def shape_of(step: StepConfig) -> BatchShape:
    """Return the batch that a step's settings ask for."""
    return BatchShape(
        num_microbatches=step.num_microbatches, rows=step.microbatch_size, seq_len=step.seq_len
    )


def find_files(config: DataConfig) -> Iterator[Path]:
    """Yield the files to read: those of a folder by name, then its subfolders', by name.

    Hidden and compiled files are left out, and of the standard library what was installed later.

    Raises:
        ConfigError: The path does not exist.
    """
    root = Path(config.path) if config.path else Path(sysconfig.get_path("stdlib"))
    if root.is_file():
        yield root
    elif root.is_dir():
        pattern = config.pattern or ("*" if config.path else "*.py")
        skipped = {"__pycache__"} if config.path else {"__pycache__", "site-packages"}
        yield from _walk(root, pattern, skipped)
    else:
        raise ConfigError(f"data.path {root} does not exist", "", "name a file or folder of text")


def _walk(folder: Path, pattern: str, skipped: set[str]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigError(f"data folder {folder} cannot be read: {error.strerror}") from None
    for entry in entries:
        if not entry.name.startswith(".") and fnmatchcase(entry.name, pattern) and entry.is_file():
            yield Path(entry.path)
    for entry in entries:
        if entry.name.startswith(".") or entry.name in skipped:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), pattern, skipped)


def read_text(config: DataConfig) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], str]:
    """Return the bytes of all files one after the other, and where they are from, in words.

    Raises:
        ConfigError: There is no text, or a file cannot be read.
    """
    limit = config.max_bytes or (None if config.path else STDLIB_BYTES)
    where = config.path or "the Python standard library"
    parts: list[bytes] = []
    left = limit
    for path in find_files(config):
        if left is not None and left <= 0:
            break
        try:
            with path.open("rb") as file:
                parts.append(file.read() if left is None else file.read(left))
        except OSError as error:
            raise ConfigError(f"data file {path} cannot be read: {error.strerror}") from None
        if left is not None:
            left -= len(parts[-1])
    text = np.frombuffer(b"".join(parts), dtype=np.uint8)
    if not parts:
        needed = f"a file that matches {config.pattern!r}" if config.pattern else "a file"
        raise ConfigError(f"data.path {where} is empty", needed, "name a file or folder of text")
    if text.size == 0:
        raise ConfigError(f"data.path {where} holds no text", "", "name a file or folder of text")
    return text, f"{where}, {text.size:,} bytes of {_files(len(parts))}"


def _files(num: int) -> str:
    return "1 file" if num == 1 else f"{num:,} files"


class ByteText:
    """Windows of bytes, in an order drawn anew for each data epoch.

    Args:
        config: Where the text is.
        shape: The constant global batch.
        seed: The run's seed.

    Raises:
        ConfigError: No text, or less than one global batch of it.

    Invariants:
        Every window of a data epoch is read once before any is read again.
    """

    def __init__(self, config: DataConfig, shape: BatchShape, seed: int) -> None:
        self.shape, self.seed = shape, seed
        self._text, self.source = read_text(config)
        self.num_windows = max(0, (self._text.size - 1) // shape.seq_len)
        self.digest = hashlib.blake2b(self._text.tobytes(), digest_size=8).hexdigest()
        per_step = shape.num_microbatches * shape.rows
        if self.num_windows < per_step:
            raise ConfigError(
                self.source,
                f"one step reads {per_step} windows of {shape.seq_len} + 1 bytes",
                "name more text or lower step.num_microbatches, microbatch_size or seq_len",
            )
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def sample_ids(self, step: int, microbatch: int) -> tuple[int, ...]:
        """Return the samples of one microbatch: ``data epoch * num_windows + window`` each."""
        if step < 1 or not 0 <= microbatch < self.shape.num_microbatches:
            raise InternalError("T-3", f"no microbatch {microbatch} in step {step}")
        shape = self.shape
        first = ((step - 1) * shape.num_microbatches + microbatch) * shape.rows
        ids = []
        for position in range(first, first + shape.rows):
            data_epoch, place = divmod(position, self.num_windows)
            ids.append(data_epoch * self.num_windows + int(self._order(data_epoch)[place]))
        return tuple(ids)

    def batch(self, step: int, microbatch: int) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """Return one microbatch.

        Returns:
            Tokens and targets, ``[rows, seq_len]`` int64 on the CPU, and the sample ids.
        """
        ids = self.sample_ids(step, microbatch)
        length = self.shape.seq_len
        starts = np.asarray([sample % self.num_windows for sample in ids]) * length
        window = self._text[starts[:, None] + np.arange(length + 1)[None, :]]
        both = torch.from_numpy(window.astype(np.int64))
        return both[:, :-1].contiguous(), both[:, 1:].contiguous(), ids

    def _draw_order(self, data_epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        # Sorting keyed draws gives the same permutation whatever the version of numpy's shuffle.
        generator = np.random.Generator(np.random.PCG64(draw_seed("order", self.seed, data_epoch)))
        keys = generator.bit_generator.random_raw(self.num_windows)
        return np.argsort(np.asarray(keys), kind="stable")
