"""A small file that is replaced whole, also on a disk that has no room left.

Owns ``WholeFile``.  What is written next goes into a spare file whose room is already there; the
two then change names, and the old file is the next spare.  A run that meets a full disk can so
still write down who takes part and how often each was started, without which it could not go on.

What is read is followed by blanks up to the room that the file takes: JSON does not mind.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from danaus.core import disk_sync

_BLOCK_BYTES = 4096


class WholeFile:
    """One such file.  One process at a time may write it.

    Args:
        path: The file; beside it lie ``NAME.spare`` and, for an instant, ``NAME.old``.
        room_bytes: Room that is kept for it at least.
        durable: Whether it has to outlive the machine's power, and not only its writer.
    """

    def __init__(
        self, path: Path, *, room_bytes: int = 2 * _BLOCK_BYTES, durable: bool = True
    ) -> None:
        self.path = path
        self._room_bytes, self._durable = room_bytes, durable
        self._spare = path.with_name(f"{path.name}.spare")
        self._old = path.with_name(f"{path.name}.old")

    def write(self, data: bytes) -> None:
        """Replace what the file holds; a reader sees old or new, if durable after a power cut too.

        Raises:
            OSError: It is not known to be replaced: the disk failed, or has no room and ``data``
                is longer than all before.
        """
        self._settle()
        self._write_spare(data)
        # A second name keeps the old file, and with it its room, beyond the replacement.
        with contextlib.suppress(OSError):  # there is none, or the file system has no links
            os.link(self.path, self._old)
        os.replace(self._spare, self.path)
        if self._old.exists():
            os.replace(self._old, self._spare)
        else:
            with contextlib.suppress(OSError):  # the next write will ask for room again
                self._make_spare(len(data))
        if self._durable:
            _sync_folder(self.path.parent)

    def read(self) -> bytes:
        """Return what was written last, without the blanks that fill the file up.

        Raises:
            OSError: There is no such file, or it cannot be read.
        """
        return self.path.read_bytes().rstrip(b" ")

    def _settle(self) -> None:
        """Finish what a writer that died in between left."""
        if not self._old.exists():
            return
        if self._spare.exists() or os.path.samefile(self._old, self.path):
            self._old.unlink()  # still the file itself under another name, or not needed
        else:
            os.replace(self._old, self._spare)

    def _write_spare(self, data: bytes) -> None:
        if not self._spare.exists() or self._spare.stat().st_size < len(data):
            self._make_spare(len(data))
        file = os.open(self._spare, os.O_RDWR | os.O_CLOEXEC)
        try:
            _write_all(file, data + b" " * (os.fstat(file).st_size - len(data)))
            if self._durable:
                disk_sync.sync(file)
        finally:
            os.close(file)

    def _make_spare(self, num_bytes: int) -> None:
        """Make room, for a file that may still grow if that can be had."""
        blocks = -(-max(num_bytes, self._room_bytes) // _BLOCK_BYTES)
        file = os.open(self._spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, blocks * _BLOCK_BYTES)
            else:  # blanks take the room themselves
                _write_all(file, b" " * (blocks * _BLOCK_BYTES))
        finally:
            os.close(file)


def _write_all(file: int, data: bytes) -> None:
    rest, at = memoryview(data), 0
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk_sync.sync(file)
    finally:
        os.close(file)
