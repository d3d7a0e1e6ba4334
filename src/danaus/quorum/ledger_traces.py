"""What a run's ledgers say of how far it has come, for a service that has lost its disk (Q-3).

Owns a glance only: the last committed step and the highest term in the tails of the files.
Reading, merging and judging ledgers is ``ft``'s, above this room.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAIL_BYTES = 1 << 18
_STEPS = ("committed", "rolled_back")


@dataclass(frozen=True, slots=True)
class LedgerTraces:
    """How far the latest lineage has come, and the highest term named; 0 where there is none."""

    steps: int = 0
    term: int = 0


def read_traces(folder: Path) -> LedgerTraces:
    """Return what the ``*.jsonl`` files of a folder say; a missing folder says nothing."""
    furthest, term = (0, 0), 0
    for path in sorted(folder.glob("*.jsonl")):
        for line in _tail(path):
            epoch = line.get("epoch")
            of = _number(epoch[0]) if isinstance(epoch, list) and epoch else 0
            term = max(term, of, _number(line.get("term")))
            # What a later term has rolled back does not count, however far it had come.
            if line.get("line") in _STEPS:
                of = max(of, _number(line.get("term")))
                furthest = max(furthest, (of, _number(line.get("step"))))
    return LedgerTraces(furthest[1], term)


def _tail(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines in the last part of a file, of more of it if none is of a step."""
    length = TAIL_BYTES
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            while True:
                file.seek(max(0, size - length))
                lines = _whole_lines(file.read())
                if length >= size or any(line.get("line") in _STEPS for line in lines):
                    return lines
                length *= 4
    except OSError:
        return []


def _whole_lines(data: bytes) -> list[dict[str, Any]]:
    lines = []
    for raw in data.splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
