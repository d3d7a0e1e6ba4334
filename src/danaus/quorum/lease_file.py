"""A lease in a folder of a file system that all candidates share.

Each version is a file of its own, ``0000000042.json``, and to replace version 41 is to give a
finished file the name of version 42 by ``link``, which the file system does for one caller only.
There is no lock, so nobody who is stopped, or dies, can hold up another.  NFS keeps this promise
as well: whether a link was made is told by the number of the file's names, since an answer may
have been lost and the request sent again.

A file stays for as long as its version may be taken for the newest by someone who was stopped; one
who comes later still finds, once it has linked, that it is not the newest.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from danaus.core import disk_sync
from danaus.quorum.lease_events import Entry, LeaseRecord

T = TypeVar("T")

KEPT = 64
_DRAFT = ".draft-"
_DRAFT_AGE_S = 600.0


class FileLeaseStore:
    """A lease in a folder; see ``lease_store.LeaseStore``.

    Args:
        folder: Made (0700) if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._busy = False

    async def read(self) -> Entry:
        return await self._apart(self._read)

    async def swap(self, record: LeaseRecord, version: str) -> Entry | None:
        return await self._apart(lambda: self._swap(record, int(version)))

    async def _apart(self, work: Callable[[], T]) -> T:
        """Do file work on another thread: a server that does not answer stops that one only."""
        if self._busy:
            raise OSError(errno.EBUSY, f"{self.folder} has not answered for long")
        self._busy = True

        def done() -> T:
            try:
                return work()
            finally:
                self._busy = False

        return await asyncio.to_thread(done)

    def _read(self) -> Entry:
        newest = self._newest()
        if newest == 0:
            return Entry(None, "0")
        try:
            data = self._path(newest).read_bytes()
            return Entry(msgspec.json.decode(data, type=LeaseRecord), str(newest))
        except msgspec.DecodeError:
            return Entry(None, str(newest))  # edited by somebody: as one that was taken away

    def _newest(self) -> int:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return 0
        return max((int(name[:-5]) for name in names if _is_version(name)), default=0)

    def _path(self, version: int) -> Path:
        return self.folder / f"{version:010d}.json"

    def _swap(self, record: LeaseRecord, version: int) -> Entry | None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.folder / f"{_DRAFT}{secrets.token_hex(8)}"
        try:
            _write(draft, msgspec.json.encode(record))
            with contextlib.suppress(FileExistsError):
                os.link(draft, self._path(version + 1))
            won = os.stat(draft).st_nlink == 2
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
        # One who was stopped for long may have linked a version that was cleared away meanwhile.
        if not won or self._newest() != version + 1:
            return None
        _sync(self.folder)
        self._clear(version + 1)
        return Entry(record, str(version + 1))

    def _clear(self, newest: int) -> None:
        """Remove versions that nobody can take for the newest, and drafts of the dead."""
        for name in os.listdir(self.folder):
            path = self.folder / name
            with contextlib.suppress(OSError):
                is_over = _is_version(name) and int(name[:-5]) <= newest - KEPT
                if is_over or (name.startswith(_DRAFT) and self._is_old(path, newest)):
                    path.unlink()

    def _is_old(self, draft: Path, newest: int) -> bool:
        """Tell by the file server's own clock whether a draft was left behind."""
        age_s = self._path(newest).stat().st_mtime - draft.stat().st_mtime
        return age_s > _DRAFT_AGE_S


def _is_version(name: str) -> bool:
    return name.endswith(".json") and name[:-5].isascii() and name[:-5].isdigit()


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            disk_sync.sync(stream.fileno())
    except OSError:
        os.unlink(path)
        raise


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk_sync.sync(file)
    finally:
        os.close(file)
