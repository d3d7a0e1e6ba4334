"""Files of JSON lines that grow, read as they do.

Owns ``LineTail``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class LineTail:
    """Reads the lines that are appended to a file of JSON lines; a torn one is read later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the whole lines since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line for raw in whole if (line := _decoded(raw)) is not None]


def _decoded(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
