"""What the quorum service keeps on disk: one small file, whole or not there.

Owns the file's format and its writing, and whose it is: a service that is started while another
lives on, elsewhere perhaps, takes the folder from it.  What stands in the file, and when, is
``quorum.state``'s.

A service that leads by a lease writes a file of its own for each term (``state-7.json``).  So it
needs no lock, which one who was stopped might hold for ever, and what such a one still writes when
it goes on is in a file that nobody reads any more; as its lease is over by then, it tells nobody.

Invariants:
    Q-1: once ``save`` has returned, the quorum survives a power loss (``core.whole_file``).
    Where ``save`` raises, nobody may be told of it.
    A file that is torn or not ours counts as lost, never as a quorum.
    Q-3: of two services of one folder only the later can save, and so announce; what the earlier
    had saved by then, the later has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import xxhash

from danaus.core import disk_sync
from danaus.core.file_lock import take_lock
from danaus.core.whole_file import WholeFile
from danaus.quorum.events import Saved

FILE = "state.json"
MARK = "began"
KEEPER = "keeper"
ID = "folder-id"
LOCK_LIMIT_S = 2.0
_LOOK_EVERY_S = 1.0
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
        term: Of the lease, by which its holder is alone; 0: there is no lease.

    Raises:
        OSError: The folder cannot be made.
    """

    def __init__(self, folder: Path, term: int = 0) -> None:
        self.path = folder / (f"state-{term}.json" if term else FILE)
        self._folder, self._term = folder, term
        self._file = WholeFile(self.path)
        self._mark, self._keeper = folder / MARK, folder / KEEPER
        self._name = ""
        self._is_clear = False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def claim(self) -> Saved | None:
        """Keep the folder from now on, and return what is saved, as ``load`` does.

        Whoever kept it before cannot save any more.

        Raises:
            OSError: The folder cannot be written or read, or is locked for too long.
        """
        name = secrets.token_hex(8)
        with self._unlocked() if self._term else self._locked() as file:
            os.pwrite(file, name.encode(), 0)
            disk_sync.sync(file)
            self._name = name
            return self.load()

    @property
    def id(self) -> str:
        """A name of this folder, the same for all that share it."""
        path = self._folder / ID
        if not path.exists():
            draft = path.with_name(f"{ID}.{secrets.token_hex(8)}")
            WholeFile(draft).write(secrets.token_hex(8).encode())
            with contextlib.suppress(FileExistsError):  # somebody else was first
                os.link(draft, path)
            for each in self._folder.glob(f"{draft.name}*"):
                each.unlink()
        return path.read_text().strip()

    @property
    def is_kept(self) -> bool:
        """Tell whether nobody has claimed the folder since this one did."""
        try:
            return not self._name or self._keeper.read_text() == self._name
        except OSError:
            return True  # a disk that fails says nothing of who keeps it

    @contextlib.contextmanager
    def _unlocked(self) -> Iterator[int]:
        file = os.open(self._keeper, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the folder's lock, which the kernel lets go with its holder."""
        with self._unlocked() as file:
            if not take_lock(file, limit_s=LOCK_LIMIT_S):
                raise BlockingIOError(errno.EAGAIN, "another process holds the folder's lock")
            yield file

    def save(self, saved: Saved) -> None:
        """Replace what is saved.

        Raises:
            OSError: It is not known to be saved: the disk is full, or failed, or another keeps
                the folder by now.
        """
        with self._unlocked() if self._term else self._locked() as file:
            if self._name and os.pread(file, 64, 0) != self._name.encode():
                raise OSError(errno.EBUSY, "another quorum service keeps this folder")
            self._write(saved)

    def _write(self, saved: Saved) -> None:
        body = msgspec.json.encode(saved)
        sealed = _Sealed(FORMAT, xxhash.xxh3_128_hexdigest(body), msgspec.Raw(body))
        self._file.write(msgspec.json.format(msgspec.json.encode(sealed), indent=1))
        if not self._mark.exists():
            self._mark.touch(mode=0o600)
        if self._term and not self._is_clear:
            self._clear()
            self._is_clear = True

    @property
    def began(self) -> bool:
        """Tell whether anything was ever saved here, even if it is lost now."""
        return self._mark.exists() or bool(self._files())

    def load(self) -> Saved | None:
        """Return what is saved; None where nothing is, or nothing that can be trusted.

        Raises:
            OSError: A file is there but cannot be read.
        """
        found = []
        for path in self._files():
            try:
                found.append(_unsealed(WholeFile(path).read()))
            except msgspec.DecodeError as error:
                # It may be the newest, so that what the others hold is out of date.
                _log.error("%s counts as lost: %s", path, error)
                return None
        return max(found, key=lambda saved: saved.announcement.epoch, default=None)

    def _clear(self) -> None:
        """Remove what earlier terms have left, now that this one's file is there."""
        for path in self._files():
            if path != self.path:
                for each in self._folder.glob(f"{path.name}*"):
                    each.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        """Return the files of all terms up to this one, without a lease of all there are."""
        files = [self._folder / FILE, *self._folder.glob("state-*.json")]
        last = self._term or sys.maxsize
        return [path for path in files if path.exists() and _term_of(path) <= last]


def _term_of(path: Path) -> int:
    """Return the term in a file's name, 0 where there is none; what is no number comes last."""
    text = path.name.removeprefix("state").removesuffix(".json").removeprefix("-")
    return int(text or 0) if text.isascii() and (text.isdigit() or not text) else sys.maxsize


async def watch_keeper(disk: QuorumDisk, end: Callable[[], None]) -> None:
    """Call ``end`` once another service keeps the folder: members shall find that one."""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        if not disk.is_kept:
            break
    _log.error("another quorum service keeps %s: this one ends", disk.path.parent)
    end()


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
