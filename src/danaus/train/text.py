"""The text that is trained on: which files, which bytes, and whether one step can be made of it.

Owns ``Text``.  Loads no torch: a controller looks at the text before it starts anything.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from danaus.core.errors import ConfigError
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


@dataclass(frozen=True, kw_only=True)
class Text:
    """What was read.

    Args:
        data: All files, one after the other.
        source: Where they are from, in words.
        num_windows: Samples in it: windows of ``seq_len`` bytes and the one after each.
    """

    data: np.ndarray[tuple[int], np.dtype[np.uint8]]
    source: str
    num_windows: int


def load_text(config: DataConfig, shape: BatchShape) -> Text:
    """Read the text.

    Raises:
        ConfigError: There is none, or less than one global batch of it, or it cannot be read.
    """
    data, source = read_text(config)
    num_windows = max(0, (data.size - 1) // shape.seq_len)
    per_step = shape.num_microbatches * shape.rows
    if num_windows < per_step:
        raise ConfigError(
            source,
            f"one step reads {per_step} windows of {shape.seq_len} + 1 bytes",
            "name more text or lower step.num_microbatches, microbatch_size or seq_len",
        )
    return Text(data=data, source=source, num_windows=num_windows)


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
