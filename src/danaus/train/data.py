"""Text as bytes: which samples every microbatch of every step is made of.

Owns ``ByteText`` and how it finds its files.  A sample is a window of bytes; a data epoch is one pass
over all windows in an order drawn from the seed.  Where a microbatch reads is a function of
``(seed, step, microbatch)`` alone (T-2, T-3): there is no position to keep, save or undo.
Steps count from 1: step ``s`` turns the state after ``s - 1`` steps into that after ``s``.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from danaus.core.errors import ConfigError, InternalError
from danaus.model.initial import draw_seed
from danaus.train.config import DataConfig


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """The constant global batch: ``num_microbatches`` of ``rows`` windows of ``seq_len``."""

    num_microbatches: int
    rows: int
    seq_len: int


def find_files(config: DataConfig) -> list[Path]:
    """Return the files to read, in the order they are read.

    Raises:
        ConfigError: The path does not exist or holds no file that matches.
    """
    root = Path(config.path) if config.path else Path(sysconfig.get_path("stdlib"))
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise ConfigError(
            f"data.path {root} does not exist", "", "name a file or a folder of text"
        )
    skipped = {"site-packages", "__pycache__"} if not config.path else {"__pycache__"}
    files = [
        path
        for path in root.rglob(config.pattern)
        if path.is_file() and not skipped & set(path.relative_to(root).parts)
    ]
    if not files:
        raise ConfigError(
            f"data.path {root} holds no file that matches {config.pattern}",
            "",
            "name a folder with text, or another --data.pattern",
        )
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def read_bytes(files: list[Path], max_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return the files' bytes one after the other, at most ``max_bytes``.

    Raises:
        ConfigError: A file cannot be read.
    """
    parts: list[bytes] = []
    left = max_bytes
    for path in files:
        if left <= 0:
            break
        try:
            with path.open("rb") as file:
                parts.append(file.read(left))
        except OSError as error:
            raise ConfigError(f"data file {path} cannot be read: {error.strerror}") from None
        left -= len(parts[-1])
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


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
        files = find_files(config)
        self._text = read_bytes(files, config.max_bytes)
        self.num_bytes = int(self._text.size)
        self.num_windows = max(0, (self.num_bytes - 1) // shape.seq_len)
        self.digest = hashlib.blake2b(self._text.tobytes(), digest_size=8).hexdigest()
        where = config.path or "the standard library"
        if self.num_bytes == 0:
            raise ConfigError(f"data.path {where} is empty", "", "name a file or folder of text")
        per_step = shape.num_microbatches * shape.rows
        if self.num_windows < per_step:
            raise ConfigError(
                f"data.path {where} holds {self.num_bytes} bytes",
                f"one step reads {per_step} windows of {shape.seq_len} + 1",
                "name more text or lower step.microbatches, step.microbatch_size or step.seq_len",
            )
        self.source = f"{where} ({len(files)} files, {self.num_bytes} bytes)"
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
