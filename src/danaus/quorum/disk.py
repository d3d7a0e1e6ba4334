"""What the quorum service keeps on disk: one small file, whole or not there.

Owns the file's format and its writing.  What stands in it, and when, is ``quorum.state``'s.

Invariants:
    Q-1: once ``save`` has returned, the quorum survives a power loss (``core.whole_file``).
    Where ``save`` raises, nobody may be told of it.
    A file that is torn or not ours counts as lost, never as a quorum.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import xxhash

from danaus.core.whole_file import WholeFile
from danaus.quorum.events import Saved

FILE = "state.json"
MARK = "began"
FORMAT = "danaus quorum 1"
_log = logging.getLogger("danaus.quorum")


class _Sealed(msgspec.Struct, frozen=True):
    """The file: the saved value, and the checksum of its bytes."""

    format: str
    checksum: str
    saved: msgspec.Raw


class QuorumDisk:
    """The service's file in its folder.

    Args:
        folder: Made (0700) if it is not there.

    Raises:
        OSError: The folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._file = WholeFile(self.path)
        self._mark = folder / MARK
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, saved: Saved) -> None:
        """Replace what is saved.

        Raises:
            OSError: It is not known to be saved: the disk is full, or failed.
        """
        body = msgspec.json.encode(saved)
        sealed = _Sealed(FORMAT, xxhash.xxh3_128_hexdigest(body), msgspec.Raw(body))
        self._file.write(msgspec.json.format(msgspec.json.encode(sealed), indent=1))
        if not self._mark.exists():
            self._mark.touch(mode=0o600)

    @property
    def began(self) -> bool:
        """Tell whether anything was ever saved here, even if it is lost now."""
        return self._mark.exists() or self.path.exists()

    def load(self) -> Saved | None:
        """Return what is saved; None where nothing is, or nothing that can be trusted.

        Raises:
            OSError: The file is there but cannot be read.
        """
        try:
            data = self._file.read()
        except FileNotFoundError:
            return None
        try:
            return _unsealed(data)
        except msgspec.DecodeError as error:
            _log.error("%s counts as lost: %s", self.path, error)
            return None


def _unsealed(data: bytes) -> Saved:
    """Return the saved value of a file's bytes.

    Raises:
        msgspec.DecodeError: They are not what ``save`` wrote.
    """
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if sealed.format != FORMAT:
            raise msgspec.DecodeError(f"its format is {sealed.format!r}, not {FORMAT!r}")
        saved = msgspec.json.decode(sealed.saved, type=Saved)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    # The checksum is of the compact form: the file itself is laid out to be read by people.
    if xxhash.xxh3_128_hexdigest(msgspec.json.encode(saved)) != sealed.checksum:
        raise msgspec.DecodeError("its checksum does not match: it is torn or was edited")
    return saved
