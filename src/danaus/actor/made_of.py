"""What actors are made of, where that is too much for a line of a controller's record (A-12).

Owns ``MadeOf``, a private folder beside the record with one file for each mesh.  Which files are
still needed is said by the record.

Invariants:
    A file is whole or not there: it is written under another name first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from danaus.wire.frame import Buffer

LINE_BYTES = 1 << 20
"""What takes more does not belong in a line."""
_DRAFT = ".new"


class MadeOf:
    """Files of class and arguments, packed.  May be used from several threads.

    Args:
        folder: Where they lie; made with the first.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lay_down(self, mesh_id: str, parts: Collection[Buffer]) -> str:
        """Write what the actors of a mesh are made of; return the file's name.

        Raises:
            OSError: It cannot be written; nothing of it is left then.
        """
        name = hashlib.sha256(mesh_id.encode()).hexdigest()[:32]
        self._folder.mkdir(mode=0o700, exist_ok=True)
        draft = self._folder / f"{name}{_DRAFT}"
        try:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(file, "wb") as stream:
                stream.write(msgspec.msgpack.encode([bytes(part) for part in parts]))
            os.replace(draft, self._folder / name)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return name

    def read(self, name: str) -> list[bytes]:
        """Return what a file says; nothing where it is gone or damaged."""
        try:
            return msgspec.msgpack.decode((self._folder / name).read_bytes(), type=list[bytes])
        except (OSError, msgspec.MsgspecError):
            return []

    def remove(self, names: Collection[str]) -> None:
        """Remove some, and the folder with the last."""
        with contextlib.suppress(OSError):
            for name in names:
                (self._folder / name).unlink(missing_ok=True)
            self._folder.rmdir()

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all others, and the folder with the last."""
        with contextlib.suppress(OSError):
            self.remove({file.name for file in self._folder.iterdir()} - set(names))
