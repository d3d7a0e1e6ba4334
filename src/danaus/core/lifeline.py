"""A pipe whose end means death: how no process outlives the one it serves (P-4).

The one who is served holds the write end, to which nothing is ever written, and nobody else does;
the servant arms the read end.  When the write end closes, for whatever reason, the kernel itself
sends the servant SIGKILL: a process that is stopped, holds the interpreter lock or spins in a
library dies all the same.

Only Linux sends signals for pipes.  Elsewhere a thread of the servant's waits for the end and sends
the signal: it takes the interpreter lock for it, and a servant that is stopped first has to go on.
Who must run no threads, because it forks, has to notice that end by itself there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator

from danaus.core import proc_root
from danaus.core.process_descriptor import open_process

# Not named by ``fcntl`` before Python 3.12's headers.  The number means another thing elsewhere.
_F_SETSIG = 10 if sys.platform == "linux" else None


def open_lifeline() -> tuple[int, int]:
    """Return ``(read_fd, write_fd)``; neither is inherited unless passed on by name."""
    return os.pipe()


def arm_lifeline(read_fd: int, *, whole_group: bool = False, by_thread: bool = True) -> int:
    """See to it that this process is SIGKILLed once the write end of ``read_fd`` has closed.

    The descriptor is opened anew, since the kernel keeps one owner per open file and a forked
    process shares those of its parent.

    Args:
        whole_group: Also everything else in this process's group, which it must lead.
        by_thread: Where the kernel sends no signal for a pipe, a thread does; else nothing does.

    Returns:
        The descriptor to keep open for as long as the lifeline shall hold.
    """
    fd = os.open(proc_root.descriptor_path(read_fd), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if _is_signalled(fd, whole_group):
        if _has_ended(fd, 0):
            os.kill(os.getpid(), signal.SIGKILL)
    elif by_thread:
        facts = (fd, whole_group)
        threading.Thread(target=_watch, args=facts, name="lifeline", daemon=True).start()
    return fd


def _is_signalled(fd: int, whole_group: bool) -> bool:
    """Have the kernel send SIGKILL at the end of a pipe; tell whether it does."""
    if _F_SETSIG is None:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp() if whole_group else os.getpid())
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def end_watched(pid: int, gone: Callable[[], None]) -> Iterator[None]:
    """Call ``gone`` on the running loop once process ``pid`` has ended.

    A second way beside a lifeline, which a child of that process may hold open.

    Args:
        pid: The one who is served; 0: there is none.
        gone: Called at most once, perhaps at once.
    """
    if not pid:
        yield
        return
    loop = asyncio.get_running_loop()
    try:
        descriptor = open_process(pid)
    except ProcessLookupError:
        gone()
        yield
        return

    def ended() -> None:
        loop.remove_reader(descriptor)
        gone()

    loop.add_reader(descriptor, ended)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _has_ended(fd: int, wait_ms: int | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)  # macOS tells of no hang-up to whom nothing else concerns
    return bool(poll.poll(wait_ms))


def _watch(fd: int, whole_group: bool) -> None:
    if _has_ended(fd, None):
        if whole_group:
            with contextlib.suppress(OSError):  # where one of it may not be signalled
                os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def stdin_watched(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` once standard input is at its end, where it is a pipe or a socket."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # started without one
        mode = 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return

    def readable() -> None:
        if not os.read(0, 4096):
            end()

    loop.add_reader(0, readable)
    try:
        yield
    finally:
        loop.remove_reader(0)
