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
import mmap
import os
import struct
import threading
from dataclasses import dataclass

import xxhash

from danaus.core.errors import ConfigError

_FACTS = struct.Struct("<QqIIq")  # number, step, phase, reserved, collective
_CHECK = struct.Struct("<Q")
_SLOT_BYTES = 64
_BLOCK_BYTES = 2 * _SLOT_BYTES
_TRIES = 100
_IN_MEMORY = "/proc/"


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
    """One reading; ``writes`` grows with every write, also of an equal position."""

    step: int
    phase: Phase
    collective: int
    writes: int


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
        """Make a block without a file, where a full disk has no room for one; see ``path``."""
        fd = os.memfd_create("danaus-position", os.MFD_CLOEXEC)
        os.truncate(fd, _BLOCK_BYTES)
        block = cls(mmap.mmap(fd, _BLOCK_BYTES), fd)
        block.write(0, Phase.START, 0)
        return block

    @property
    def path(self) -> str:
        """Where other processes open a block made in memory, until it is closed; else empty."""
        return f"/proc/{os.getpid()}/fd/{self._fd}" if self._fd >= 0 else ""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PositionBlock:
        """Map the block that another process created.

        Raises:
            ConfigError: There is none at ``path``.
        """
        try:
            follow = 0 if os.fspath(path).startswith(_IN_MEMORY) else os.O_NOFOLLOW
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
        block._number = block.read().writes
        return block

    def write(self, step: int, phase: Phase, collective: int) -> None:
        """Say where this worker is; about a microsecond, from any thread."""
        with self._lock:
            self._put(step, phase, collective)

    def read(self) -> Position:
        """Return the last position that was written whole."""
        for _ in range(_TRIES):
            slots = (self._slot(0), self._slot(1))
            found = [slot for slot in slots if slot is not None]
            if found:
                self._last = max(found, key=lambda slot: slot.writes)
                return self._last
        return self._last

    def close(self) -> None:
        """Unmap the block; the file stays."""
        self._memory.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _put(self, step: int, phase: Phase, collective: int) -> None:
        self._number += 1
        self._last = Position(step, Phase(phase), collective, self._number)
        facts = _FACTS.pack(self._number, step, phase, 0, collective)
        slot = facts + _CHECK.pack(xxhash.xxh3_64_intdigest(facts))
        start = _SLOT_BYTES * (self._number & 1)
        self._memory[start : start + len(slot)] = slot

    def _slot(self, index: int) -> Position | None:
        start = index * _SLOT_BYTES
        raw = self._memory[start : start + _FACTS.size + _CHECK.size]
        facts = raw[: _FACTS.size]
        number, step, phase, _, collective = _FACTS.unpack(facts)
        (check,) = _CHECK.unpack(raw[_FACTS.size :])
        if number == 0 or check != xxhash.xxh3_64_intdigest(facts) or phase > Phase.DONE:
            return None
        return Position(step, Phase(phase), collective, number)
