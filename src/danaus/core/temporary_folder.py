"""Folders for as long as a program lives; what a killed one leaves, the next one removes.

Owns ``TemporaryFolder``.  Whoever makes one holds a lock (flock) in it, which the kernel lets go
whatever becomes of the holder, and first removes the folders of its own user that nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

_PREFIX = "danaus-"
_LOCK = "held"


class TemporaryFolder:
    """A private folder in the temporary directory.

    Args:
        parent: Another directory for it.
        outlives: Others work there without this program: only ``remove`` removes it.

    Attributes:
        path: Where it is.
    """

    def __init__(self, *, parent: str = "", outlives: bool = False) -> None:
        parent = parent or tempfile.gettempdir()
        _remove_left(Path(parent))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock_fd = -1 if outlives else _hold(self.path)

    @classmethod
    def found(cls, path: Path) -> TemporaryFolder:
        """Return a folder that was made to outlive its program, by another program."""
        folder = cls.__new__(cls)
        folder.path, folder._lock_fd = path, -1
        return folder

    def remove(self) -> None:
        """Remove the folder and all that is in it; safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _hold(folder: Path) -> int:
    """Return a descriptor that holds the folder for as long as it is open."""
    draft = folder / f".{_LOCK}"
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    draft.rename(folder / _LOCK)  # only now can it be found: nobody else gets the lock before us
    return fd


def _remove_left(parent: Path) -> None:
    """Remove the folders that a program of ours held and holds no more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_files:
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            open_files.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
