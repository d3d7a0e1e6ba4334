"""A system that has nothing of what Linux alone has.

``take_away`` makes one of this interpreter; ``everywhere`` gives a program's environment in which
it, and every Python process that it starts, is one from its first line on.  Nothing of danaus's is
replaced but where it looks for ``/proc``, and whom it asks for a kqueue, which Linux has not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Self

ROOT = Path(__file__).parents[2]

_LACKED = {
    os: (
        "eventfd",
        "eventfd_read",
        "eventfd_write",
        "memfd_create",
        "pidfd_open",
        "pipe2",
        "posix_fallocate",
        "sched_getaffinity",
        "sched_setaffinity",
        "waitid",  # macOS has it from Python 3.13 on
    ),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    select: ("epoll",),
    socket: (
        "MSG_CMSG_CLOEXEC",
        "SOCK_CLOEXEC",
        "SOCK_NONBLOCK",
        "SOCK_SEQPACKET",
        "SO_PEERCRED",
        "TCP_KEEPIDLE",
        "TCP_USER_TIMEOUT",
    ),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_GROW", "F_SEAL_SEAL", "F_SEAL_SHRINK"),
    mmap: ("MADV_HUGEPAGE",),
    time: ("CLOCK_BOOTTIME",),
}
_F_SETSIG = 10

_pidfd_open = os.pidfd_open
_fcntl = fcntl.fcntl


class Kqueue:
    """Holds a descriptor of the process that it is told to watch, as a kqueue of its event."""

    def __init__(self) -> None:
        self._watched = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watched >= 0:
            os.close(self._watched)

    def control(self, changes: list[tuple[object, ...]], max_events: int) -> list[object]:
        ((pid, *what),) = changes
        assert (what, max_events) == (["proc", "add", "exit"], 0)
        assert isinstance(pid, int)
        watched = _pidfd_open(pid)
        if _ends(watched):  # a kqueue is told nothing of what has ended, reaped or not
            os.close(watched)
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        self._watched = watched
        return []

    def fileno(self) -> int:
        return self._watched


def _ends(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


KQUEUE = SimpleNamespace(
    kqueue=Kqueue,
    kevent=lambda *facts: facts,
    KQ_FILTER_PROC="proc",
    KQ_EV_ADD="add",
    KQ_NOTE_EXIT="exit",
)


class _Library(ctypes.CDLL):
    """A C library that says nothing of what is Linux's alone."""

    def __getattr__(self, name: str) -> object:
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)


def _no_signals_from_pipes(fd: int, command: int, argument: int = 0) -> int:
    if command == _F_SETSIG:
        raise OSError(errno.EBADF, "it is no such file")  # as macOS, where the number means another
    return _fcntl(fd, command, argument)


def take_away(proc: str, *, forks: bool) -> None:
    """Make this interpreter one of another system, which finds nothing below ``/proc``.

    Args:
        proc: An empty folder, to be looked at in its place.
        forks: Processes may be copied there.
    """
    for module, names in _LACKED.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
    fcntl.fcntl = _no_signals_from_pipes
    ctypes.CDLL = _Library  # type: ignore[misc]
    from danaus.actor import boot
    from danaus.core import proc_root, process_descriptor

    assert not boot.MAY_FORK
    boot.MAY_FORK = forks
    proc_root.ROOT = Path(proc)
    process_descriptor._kernel = KQUEUE


def everywhere(folder: Path, *, forks: bool = False, has_uvloop: bool = True) -> dict[str, str]:
    """Return the environment of a program that lives on another system.

    Args:
        folder: Where what it needs may be laid down.
        forks: It is one on which processes may be copied.
        has_uvloop: It has that loop, beside asyncio's own.
    """
    proc, start = folder / "proc", folder / "start"
    for each in (proc, start):
        each.mkdir(exist_ok=True)
    (start / "elsewhere.py").write_text(Path(__file__).read_text())
    # What the standard library asks macOS for.
    (start / "_scproxy.py").write_text("_get_proxies = _get_proxy_settings = dict\n")
    if not has_uvloop:
        (start / "uvloop.py").write_text("raise ImportError('not on this platform')\n")
    (start / "sitecustomize.py").write_text(
        f"import elsewhere\nelsewhere.take_away({str(proc)!r}, forks={forks})\n"
    )
    path = os.pathsep.join((str(start), str(ROOT / "src")))
    return {**os.environ, "PYTHONPATH": path}
