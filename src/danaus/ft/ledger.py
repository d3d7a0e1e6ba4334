"""The ledger: what each committed step was, one JSON line per step and member process (T-7).

Owns the lines, the writer that a full disk cannot stop, and the reader that drops torn tails.
Merging the ledgers of a run and judging them is ``ft.lineage``'s.

A file belongs to one member process and its later incarnations, one after the other; each begins
with ``Opened``.  A line is durable against the death of its process once it is written, against
that of the machine once ``sync`` returned.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from danaus.core import disk_sync
from danaus.core.errors import LedgerDamaged
from danaus.quorum.messages import Epoch, MemberId


class Opened(msgspec.Struct, frozen=True, tag_field="line", tag="opened"):
    """An incarnation began to write.

    Args:
        at: Unix time, seconds.
        member: Who writes.
        identity: Digest of the settings and the text that the bits depend on.
        samples_per_data_epoch: Samples in one pass over the text; 0: not known.
        environment: What else the bits depend on, in words (T-4).
    """

    at: float
    member: MemberId
    identity: str = ""
    samples_per_data_epoch: int = 0
    environment: dict[str, str] = {}


class Committed(msgspec.Struct, frozen=True, tag_field="line", tag="committed"):
    """A step was applied.

    Args:
        at: Unix time, seconds.
        step: The step, from 1.
        epoch: The epoch in which it was voted.
        members: Who took part.
        leaves: Which leaves each replica computed: first, and one past the last.
        samples: Each leaf's samples, as ``pack_samples`` writes them.
        num_tokens: Tokens of the global batch.
        loss: Mean over the tokens.
        grad_norm: Before clipping.
        fingerprint: Of this rank's state after the step.
        attempt: Which try of the writer it was, from 1.
        durations_s: Seconds by phase.
    """

    at: float
    step: int
    epoch: Epoch
    members: tuple[MemberId, ...]
    leaves: dict[str, tuple[int, int]]
    samples: tuple[str, ...]
    num_tokens: int
    loss: float
    grad_norm: float
    fingerprint: str
    attempt: int = 1
    durations_s: dict[str, float] = {}


class RolledBack(msgspec.Struct, frozen=True, tag_field="line", tag="rolled_back"):
    """The run went back to the state after ``step``; later steps of terms below ``term`` are void.

    Args:
        at: Unix time, seconds.
        step: The step that was restored (0: the seed's weights).
        term: The term in which the run goes on.
        reason: Why, in words.
    """

    at: float
    step: int
    term: int
    reason: str = ""


Line = Opened | Committed | RolledBack

_encoder = msgspec.json.Encoder()
_BEGINNING = b'{"line":'
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def pack_samples(samples: Iterable[int]) -> str:
    """Return sample ids as sorted ranges: ``3-5,9``; an id given twice is written twice."""
    runs: list[list[int]] = []
    for sample in sorted(samples):
        if runs and sample == runs[-1][1] + 1:
            runs[-1][1] = sample
        else:
            runs.append([sample, sample])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def unpack_samples(text: str) -> list[int]:
    """Return the ids of ``pack_samples``.

    Raises:
        ValueError: The text is not of that form.
    """
    ids: list[int] = []
    for run in text.split(",") if text else ():
        first, _, last = run.partition("-")
        ids.extend(range(int(first), int(last or first) + 1))
    return ids


class Ledger:
    """Appends lines to one member process's file.

    A line that cannot be written (a full disk) waits in memory and is written before the next;
    a run is never stopped by it.

    Args:
        path: The file; made (0600) if it is not there, its folder too.
        opened: The first line of this incarnation.
    """

    def __init__(self, path: Path, opened: Opened) -> None:
        self.path = path
        self.problem = ""
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._file: int | None = None
        self._closed = False
        self.append(opened)

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for room on the disk; ``problem`` says why."""
        return len(self._pending)

    def append(self, line: Line) -> bool:
        """Write one line; return False if it has to wait, and try again at the next."""
        with self._lock:
            self._pending += _encoder.encode(line) + b"\n"
            return self._write()

    def sync(self) -> bool:
        """Make all lines durable against the machine's death; return False if that failed."""
        with self._lock:
            if not self._write() or self._file is None:
                return False
            try:
                disk_sync.sync(self._file)
            except OSError as error:
                self.problem = _words(error)
                return False
            return True

    def close(self) -> None:
        """Try once more to write what waits, and close the file."""
        with self._lock:
            self._write()
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _write(self) -> bool:
        if self._closed:
            return False
        try:
            if self._file is None:
                self._file = self._open()
            while self._pending:
                written = os.write(self._file, self._pending)
                del self._pending[:written]
        except OSError as error:
            self.problem = _words(error)
            return False
        self.problem = ""
        return True

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self.path, flags, 0o600)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            # An earlier incarnation died within a line: keep its bytes, end its line.
            self._pending[:0] = b"\n"
        return file


def _words(error: OSError) -> str:
    return error.strerror or str(error)


@dataclass(frozen=True)
class LedgerFile:
    """What one ledger says.

    Args:
        path: The file.
        writer: ``replica/rank``.
        lines: Those that could be read, in order.
        num_torn: Lines cut off by the death of their writer.
        damaged: Numbers (from 1) of lines that cannot be read and were not torn.
    """

    path: Path
    writer: str
    lines: tuple[Line, ...]
    num_torn: int = 0
    damaged: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        """The writer's rank in its replica."""
        return int(self.writer.rpartition("/")[2])


def read_ledger(path: Path) -> LedgerFile:
    """Read one ledger.

    A line that cannot be read is torn if it begins as lines do and is the last, or an incarnation
    begins after it: its writer died within it.

    Raises:
        LedgerDamaged: The file cannot be read, or belongs to nobody.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise LedgerDamaged(path=str(path), why=f"cannot be read: {_words(error)}") from None
    pieces = raw.split(b"\n")
    tail = pieces.pop()
    read = [_decode(piece) for piece in pieces]
    if tail:
        read.append(_decode(tail))  # whole but for its end of line: it counts
    num_torn, damaged = 0, []
    for place, line in enumerate(read):
        if line is None:
            following = next((each for each in read[place + 1 :] if each is not None), None)
            is_last = following is None or isinstance(following, Opened)
            if is_last and _begins_as_lines_do((*pieces, tail)[place]):
                num_torn += 1
            else:
                damaged.append(place + 1)
    lines = tuple(line for line in read if line is not None)
    return LedgerFile(path, _writer(path, lines), lines, num_torn, tuple(damaged))


def _begins_as_lines_do(piece: bytes) -> bool:
    said = piece.strip(b"\0")  # of a machine that lost its power before the data was on the disk
    return said[: len(_BEGINNING)] == _BEGINNING[: len(said)]


def _decode(piece: bytes) -> Line | None:
    try:
        return _decoder.decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _writer(path: Path, lines: tuple[Line, ...]) -> str:
    names = {f"{x.member.replica_id}/{x.member.rank}" for x in lines if isinstance(x, Opened)}
    if len(names) > 1:
        raise LedgerDamaged(
            path=str(path), why=f"written by {' and '.join(sorted(names))}; a ledger has one writer"
        )
    if names:
        return names.pop()
    replica_id, _, rank = path.stem.rpartition("-")
    if replica_id and rank.isdigit():
        return f"{replica_id}/{int(rank)}"
    raise LedgerDamaged(path=str(path), why="no line says who wrote it, nor does its name")
