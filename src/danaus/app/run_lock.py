"""The lock that makes a process the one controller of a run folder.

Owns ``RunLock``: ``control/lock`` is held (flock) by the living controller, and names it by pid and
start time.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from danaus.actor import procfs
from danaus.actor.found_process import FoundProcess
from danaus.core.errors import RunFolderBusy
from danaus.core.file_lock import take_lock

_END_LIMIT_S = 5.0


class RunLock:
    """One run folder's lock.

    Args:
        path: The run's folder.
        name: Of the file, where it is not the controller's.
    """

    def __init__(self, path: Path, name: str = "lock") -> None:
        self._folder, self._path = path, path / "control" / name
        self._fd: int | None = None

    @property
    def is_held(self) -> bool:
        """Tell whether this process holds it."""
        return self._fd is not None

    def hold(self, *, take_over: bool = False) -> None:
        """Take the lock, until ``release`` or the end of this process.

        Args:
            take_over: End a controller of this machine that holds it: it may be stopped, or hang.

        Raises:
            RunFolderBusy: Another controller is alive.
        """
        if self._fd is not None:
            return
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.ExitStack() as failing:
            failing.callback(os.close, fd)
            if not take_lock(fd) and not (take_over and self._end_holder(fd)):
                raise self._busy()
            failing.pop_all()
        stat = procfs.read_stat(os.getpid())
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {stat.started if stat is not None else 0}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let go of it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def holder(self) -> tuple[int, int]:
        """Return pid and start time of whoever holds it or held it last; zeros: nobody did."""
        try:
            pid, started = self._path.read_text().split()
            return int(pid), int(started)
        except (OSError, ValueError):
            return 0, 0

    @property
    def is_free(self) -> bool:
        """Tell whether nobody holds it."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            return take_lock(fd)
        finally:
            os.close(fd)

    def _end_holder(self, fd: int) -> bool:
        """SIGKILL the controller that holds the lock; tell whether the lock is ours now."""
        procfs.kill_exactly(*self.holder())
        return take_lock(fd, limit_s=_END_LIMIT_S)

    def _busy(self) -> RunFolderBusy:
        pid, started = self.holder()
        stat = procfs.read_stat(pid) if pid else None
        stopped = stat is not None and stat.started == started and stat.is_stopped
        who = f"pid {pid or 'unknown'}{', stopped' if stopped else ''}"
        go_on = f"let it go on (kill -CONT {pid}), or replace it with --take-over"
        return RunFolderBusy(
            path=str(self._folder),
            held_by=f"a run whose controller is alive ({who})",
            to_do=go_on
            if stopped
            else "stop that one first, or choose another folder with --run-dir",
        )


def found_holder(path: Path) -> FoundProcess | None:
    """Return the living controller of a run folder, None if there is none on this machine."""
    return FoundProcess.find(*RunLock(path).holder())
