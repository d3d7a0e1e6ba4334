"""Text as bytes: which samples every microbatch of every step is made of.

Owns ``ByteText``.  A sample is a window of bytes; a data epoch is one
pass over all windows in an order drawn from the seed.  Where a microbatch reads is a function of
``(seed, step, microbatch)`` alone (T-2, T-3): there is no position to keep, save or undo.
Steps count from 1: step ``s`` turns the state after ``s - 1`` steps into that after ``s``.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from danaus.core.errors import InternalError
from danaus.model.initial import draw_seed
from danaus.train.config import DataConfig
from danaus.train.text import BatchShape, load_text


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
        text = load_text(config, shape)
        self._text, self.source, self.num_windows = text.data, text.source, text.num_windows
        self.digest = hashlib.blake2b(self._text.tobytes(), digest_size=8).hexdigest()
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

        Args:
            step: From 1.
            microbatch: Which of the step, from 0.

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
