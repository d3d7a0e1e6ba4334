"""What actors are made of, as a controller's record keeps it (A-12): in a line, or in a file.

Owns how it is packed, and ``MadeOf``, a private folder beside the record with one file for each
mesh that needs more than a line.  Which files are still needed is said by the record.

Invariants:
    A file is whole or not there: it is written under another name first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from danaus.wire.frame import Buffer

LINE_BYTES = 1 << 20
"""What takes more does not belong in a line."""
_DRAFT = ".new"


def pack_parts(parts: Sequence[Buffer]) -> bytes:
    """Return class and arguments as one."""
    return msgspec.msgpack.encode([bytes(part) for part in parts])


def unpack_parts(packed: bytes) -> list[bytes]:
    """Return what ``pack_parts`` was given.

    Raises:
        msgspec.MsgspecError: It is damaged.
    """
    return msgspec.msgpack.decode(packed, type=list[bytes])


class MadeOf:
    """Files of class and arguments, packed.  May be used from several threads.

    Args:
        folder: Where they lie; made with the first.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lay_down(self, mesh_id: str, parts: Sequence[Buffer]) -> str:
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
                stream.write(pack_parts(parts))
            os.replace(draft, self._folder / name)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return name

    def read(self, name: str) -> list[bytes]:
        """Return what a file says; nothing where it is gone or damaged."""
        try:
            return unpack_parts((self._folder / name).read_bytes())
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
