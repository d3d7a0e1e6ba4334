"""The journal: what happened, one JSON line per event.

Owns writing and reading of these lines.  Several processes may append to one file: each line is
one ``write`` on a descriptor opened for appending.  A journal never stops a run: a line that
cannot be written (a full disk) is counted, and the next line that can be written says how many
were lost.

Each line has ``at`` (Unix time, seconds), ``mono`` (the host's monotonic clock, seconds: for
intervals between processes of one host), ``event``, and the event's facts.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from danaus.core.clock import Clock, MonotonicClock, time_of_day
from danaus.core.patient_text import DISK_FULL


class Journal:
    """Appends events to a file.  May be used from several threads.

    Args:
        path: The file; made (0600) if it is not there, its folder too.
        clock: Where ``mono`` comes from.

    Raises:
        OSError: the file cannot be opened, for another reason than a full disk.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self.num_lost = 0
        self._clock = clock or MonotonicClock()
        self._lock = threading.Lock()
        self._unreported = 0
        self._closed = False
        self._file: int | None = None
        try:
            self._file = self._open()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise

    def record(self, event: str, /, **facts: Any) -> None:
        """Append one line.  Facts that JSON does not know are written as text.  Never raises."""
        with self._lock:
            line = {
                "at": round(time_of_day(), 6),
                "mono": round(self._clock.now(), 6),
                "event": event,
                **{name: fact for name, fact in facts.items() if name not in _RESERVED},
            }
            if self._unreported:
                line["lost_before"] = self._unreported
            if self._write(line):
                self._unreported = 0
            else:
                self._unreported += 1
                self.num_lost += 1

    def close(self) -> None:
        """Close the file; later events count as lost."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _write(self, line: dict[str, Any]) -> bool:
        if self._closed:
            return False
        try:
            data = _encode(line)
            if self._file is None:
                self._file = self._open()
            if _ends_in_half_a_line(self._file):  # a writer died, or the disk was full, midway
                data = b"\n" + data
            return os.write(self._file, data) == len(data)
        except (OSError, ValueError, TypeError, RecursionError):
            return False


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal, oldest first; half-written ones are left out.

    A journal that does not exist has no lines.
    """
    return list(_lines(path))


_RESERVED = ("at", "mono", "event")


def _encode(line: dict[str, Any]) -> bytes:
    return json.dumps(line, default=str, separators=(",", ":")).encode() + b"\n"


def _ends_in_half_a_line(file: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for raw in data.splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
