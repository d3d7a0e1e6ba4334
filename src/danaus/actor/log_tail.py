"""The logs of processes: each writes to a file of its own, and others read its end.

A process writes straight to its file, so that its last words survive whoever dies with it.
"""

from __future__ import annotations

import os
from pathlib import Path

TAIL_LINES = 20
_TAIL_BYTES = 8192
_READ_BYTES = 256 * 1024


def tail(path: str | os.PathLike[str], num_lines: int = TAIL_LINES) -> tuple[str, ...]:
    """Return the last lines of a file, none if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except OSError:
        return ()
    lines = data.decode(errors="replace").splitlines()
    if size > _TAIL_BYTES:
        lines = lines[1:]  # begins in the middle
    return tuple(lines[-num_lines:])


def log_path(run_dir: str | os.PathLike[str], process_id: str) -> str:
    """Return where a process writes: ``logs/<process>.log``, slashes become dashes."""
    return os.fspath(Path(run_dir) / "logs" / f"{process_id.replace('/', '-')}.log")


class LogFollower:
    """Reads the whole lines that were added to a file since the last look.

    Args:
        path: The file; it need not exist yet.
        from_tail: Begin with the last lines that are there, as ``tail -f`` does, instead of the
            first: whoever asks then misses nothing that was written while the asking travelled.
    """

    def __init__(self, path: str | os.PathLike[str], *, from_tail: bool = False) -> None:
        self._path = Path(path)
        self._at = self._start_of_tail() if from_tail else 0
        self._rest = b""

    def lines(self) -> tuple[str, ...]:
        """Return the lines completed since the last call."""
        if self._size() == self._at:
            return ()
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_READ_BYTES)
        except OSError:
            return ()
        self._at += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return tuple(line.decode(errors="replace") for line in whole)

    def _start_of_tail(self) -> int:
        size = self._size()
        start = max(0, size - _TAIL_BYTES)
        try:
            with self._path.open("rb") as file:
                file.seek(start)
                data = file.read(size - start)
        except OSError:
            return 0
        lines = data.splitlines(keepends=True)
        if start:
            lines = lines[1:]  # begins in the middle
        return size - sum(map(len, lines[-TAIL_LINES:]))

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0
