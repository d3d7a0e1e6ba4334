"""How far a worker's step has come, in memory that its host agent can read (P-3).

Owns ``Phase``, ``Position`` and the block of shared memory.  The worker writes, the agent reads
whenever it likes: it needs no answer from the worker, so that one whose interpreter is held up is
seen too.  Judging positions is the quorum room's work.

Invariant: a reader sees a position that was written whole, or an older one, never a mixture, even
when the writer died in the middle of a write.  Two slots are written in turn; each carries a
checksum and a number, and the valid one with the highest number counts.
"""

from __future__ import annotations

import enum
import errno
import mmap
import os
import struct
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from danaus.core import proc_root
from danaus.core.errors import ConfigError
from danaus.core.unnamed_memory import unnamed_memory

_FACTS = struct.Struct("<QQqIIq")  # number, moves, step, phase, for siblings, collective
_CHECK = struct.Struct("<Q")
_SLOT_BYTES = 64
_BLOCK_BYTES = 2 * _SLOT_BYTES
_TRIES = 100


class Phase(enum.IntEnum):
    """Where in a step a worker is; a higher value is further on in the same step."""

    START = 0
    JOIN = 1
    LEARN = 2
    HOLD = 3
    COMPUTE = 4
    REDUCE = 5
    VOTE = 6
    APPLY = 7
    CHECKPOINT = 8
    DONE = 9

    @property
    def waits(self) -> bool:
        """Tell whether standing still in this phase is waiting for others."""
        return self in (Phase.JOIN, Phase.LEARN, Phase.HOLD)


@dataclass(frozen=True, slots=True)
class Position:
    """One reading.

    Args:
        step: In which step the worker is.
        phase: Where in it.
        collective: Which exchange, or which leaf, it is at.
        moves: Grows with every write of a position, also of an equal one.
        for_siblings: It stands there for other ranks of its replica at the moment.
    """

    step: int
    phase: Phase
    collective: int
    moves: int
    for_siblings: bool = False


class PositionBlock:
    """A file of 128 bytes, or memory without one, mapped by a worker and its host agent."""

    def __init__(self, memory: mmap.mmap, fd: int = -1) -> None:
        self._memory = memory
        self._fd = fd
        self._lock = threading.Lock()
        self._number = 0
        self._last = Position(0, Phase.START, 0, 0)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> PositionBlock:
        """Make or reset the block at ``path``, at step 0 in phase ``START``.

        Raises:
            OSError: It cannot be made.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Written, not only made long: the first touch of a page for which a full disk has
            # no room is a SIGBUS, this is an OSError.
            os.pwrite(fd, bytes(_BLOCK_BYTES), 0)
            block = cls(mmap.mmap(fd, _BLOCK_BYTES))
        finally:
            os.close(fd)
        block.write(0, Phase.START, 0)
        return block

    @classmethod
    def create_in_memory(cls) -> PositionBlock:
        """Make a block without a file, where a full disk has no room for one; see ``path``.

        Raises:
            OSError: This system has no memory that others open by a path.
        """
        if not proc_root.is_there():
            raise OSError(errno.ENOSYS, "this system has no paths to memory")
        fd = unnamed_memory("danaus-position", _BLOCK_BYTES)
        block = cls(mmap.mmap(fd, _BLOCK_BYTES), fd)
        block.write(0, Phase.START, 0)
        return block

    @property
    def path(self) -> str:
        """Where other processes open a block made in memory, until it is closed; else empty."""
        return str(proc_root.ROOT / f"{os.getpid()}/fd/{self._fd}") if self._fd >= 0 else ""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PositionBlock:
        """Map the block that another process created.

        Raises:
            ConfigError: There is none at ``path``.
        """
        try:
            in_memory = Path(path).is_relative_to(proc_root.ROOT)
            follow = 0 if in_memory else os.O_NOFOLLOW
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | follow)
        except OSError as error:
            raise ConfigError(
                f"position block {os.fspath(path)}", f"cannot be opened: {error.strerror}"
            ) from error
        try:
            if os.fstat(fd).st_size != _BLOCK_BYTES:
                raise ConfigError(f"position block {os.fspath(path)}", f"{_BLOCK_BYTES} bytes")
            block = cls(mmap.mmap(fd, _BLOCK_BYTES))
        finally:
            os.close(fd)
        newest = block._newest()
        if newest is not None:
            block._number, block._last = newest
        return block

    def write(self, step: int, phase: Phase, collective: int) -> None:
        """Say where this worker is; about a microsecond, from any thread."""
        with self._lock:
            last = self._last
            self._put(Position(step, Phase(phase), collective, last.moves + 1, last.for_siblings))

    def wait_for_siblings(self, begins: bool) -> None:
        """Say that this worker waits for other ranks of its replica, or no more.

        It has not moved by that: what it is at takes as long as it takes.
        """
        with self._lock:
            self._put(replace(self._last, for_siblings=begins))

    def read(self) -> Position:
        """Return the last position that was written whole."""
        for _ in range(_TRIES):
            newest = self._newest()
            if newest is not None:
                _, self._last = newest
                break
        return self._last

    def _newest(self) -> tuple[int, Position] | None:
        found = [slot for slot in (self._slot(0), self._slot(1)) if slot is not None]
        return max(found, key=lambda slot: slot[0], default=None)

    def close(self) -> None:
        """Unmap the block; the file stays."""
        self._memory.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _put(self, at: Position) -> None:
        self._number += 1
        self._last = at
        facts = _FACTS.pack(
            self._number, at.moves, at.step, at.phase, at.for_siblings, at.collective
        )
        slot = facts + _CHECK.pack(xxhash.xxh3_64_intdigest(facts))
        start = _SLOT_BYTES * (self._number & 1)
        self._memory[start : start + len(slot)] = slot

    def _slot(self, index: int) -> tuple[int, Position] | None:
        start = index * _SLOT_BYTES
        raw = self._memory[start : start + _FACTS.size + _CHECK.size]
        facts = raw[: _FACTS.size]
        number, moves, step, phase, for_siblings, collective = _FACTS.unpack(facts)
        (check,) = _CHECK.unpack(raw[_FACTS.size :])
        if number == 0 or check != xxhash.xxh3_64_intdigest(facts) or phase > Phase.DONE:
            return None
        return number, Position(step, Phase(phase), collective, moves, bool(for_siblings))
