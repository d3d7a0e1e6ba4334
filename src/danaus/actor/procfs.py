"""What the kernel tells of a process, from ``/proc/PID/stat``.

``kill(pid, 0)`` succeeds on a zombie and a pid comes back after use, so a process is known by
its pid *and* the time it was started, and its state is read.

A system without ``/proc`` tells a parent of its children (by ``waitid``), and of all others only
whether there is one of that pid.  When it was started nobody knows there, and so no process is
taken for one that was meant but a child of this very process: its pid is nobody else's before it is
reaped.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from danaus.core import proc_root
from danaus.core.process_descriptor import open_process, signal_process


@dataclass(frozen=True)
class ProcessStat:
    """One reading.

    ``started`` is in clock ticks since boot, ``wait_status`` as of ``waitpid``.  What is not known
    is ``?``, 0, and None.
    """

    pid: int
    state: str
    parent: int
    started: int
    wait_status: int | None

    @property
    def is_zombie(self) -> bool:
        """Tell whether it has ended and nobody has asked for its status."""
        return self.state in "ZX"

    @property
    def is_stopped(self) -> bool:
        """Tell whether it is stopped by a signal (a debugger's stop is its own affair)."""
        return self.state == "T"

    def is_one_started(self, started: int) -> bool:
        """Tell whether it is the process of this pid that was started then."""
        return self.started == started and (started > 0 or self.parent == os.getpid())


def read_stat(pid: int) -> ProcessStat | None:
    """Return what the kernel tells of ``pid``, None if there is no such process."""
    try:
        fields = proc_root.stat_fields(pid)
    except OSError:
        return None if proc_root.is_there() else _asked(pid)
    return ProcessStat(pid, fields[0], int(fields[1]), int(fields[19]), int(fields[-1]))


def _asked(pid: int) -> ProcessStat | None:
    """Return what can be found out of a process where nothing is to be read."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return ProcessStat(pid, "?", 0, 0, None)
    if not hasattr(os, "waitid"):  # macOS before Python 3.13: there is no looking without taking
        return ProcessStat(pid, "?", 0, 0, None)
    how = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT  # looked at, not taken
    try:
        news = os.waitid(os.P_PID, pid, how)
    except ChildProcessError:
        return ProcessStat(pid, "?", 0, 0, None)
    if news is None:
        return ProcessStat(pid, "?", os.getpid(), 0, None)
    if news.si_code == os.CLD_EXITED:
        return ProcessStat(pid, "Z", os.getpid(), 0, news.si_status << 8)
    if news.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
        return ProcessStat(pid, "Z", os.getpid(), 0, news.si_status)
    return ProcessStat(pid, "T", os.getpid(), 0, None)


def open_exactly(pid: int, started: int) -> int | None:
    """Return a descriptor of the process that has this pid and start time, None if it is gone.

    It means this one process from then on, whoever gets its pid later; the caller closes it.
    """
    try:
        descriptor = open_process(pid)
    except OSError:
        return None
    stat = read_stat(pid)
    if stat is None or stat.is_zombie or not stat.is_one_started(started):
        os.close(descriptor)
        return None
    return descriptor


def kill_exactly(pid: int, started: int) -> bool:
    """SIGKILL the process that has this pid and start time.

    Returns:
        Whether it was there, alive and could be killed.
    """
    return signal_exactly(pid, started, signal.SIGKILL)


def signal_exactly(pid: int, started: int, number: signal.Signals) -> bool:
    """Send a signal to the process that has this pid and start time.

    Returns:
        Whether it was there, alive and could be signalled.
    """
    descriptor = open_exactly(pid, started)
    if descriptor is None:
        return False
    try:
        signal_process(descriptor, pid, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def pid_here(pid: int, first: int) -> int | None:
    """Return the pid, here, of a process that its own pid namespace knows as ``pid``.

    Args:
        pid: Its pid inside.
        first: The pid, here, of any process of that namespace.

    Returns:
        None if there is none, or nothing is to be read.
    """
    namespace = _namespace_of(str(first))
    for process in proc_root.ROOT.glob("[0-9]*"):
        if namespace is not None and _namespace_of(process.name) == namespace:
            try:
                text = (process / "status").read_text(errors="replace")
            except OSError:
                continue
            pids = text.partition("\nNSpid:")[2].partition("\n")[0].split()
            if pids[-1:] == [str(pid)]:
                return int(process.name)
    return None


def _namespace_of(pid: str) -> str | None:
    try:
        return os.readlink(proc_root.ROOT / pid / "ns" / "pid")
    except OSError:
        return None


def children_of(pid: int) -> list[int]:
    """Return the living children of ``pid``, started by any of its threads.

    It has none to tell of where nothing is to be read.
    """
    found: list[int] = []
    for task in (proc_root.ROOT / str(pid) / "task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found


def num_oom_kills() -> int:
    """Return how many processes the kernel has ended for want of memory, on the whole machine.

    0 where it does not say.
    """
    try:
        lines = (proc_root.ROOT / "vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def how_ended(code: int) -> str:
    """Return the end of a process in words, as in ``exit code 3`` or ``SIGKILL``.

    Args:
        code: Its exit code; of one that a signal has ended, the signal's number below zero.
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def split_status(wait_status: int | None) -> tuple[int | None, str | None]:
    """Return ``(exit code, name of the signal)``, one of them None; both if it is not known."""
    if wait_status is None:
        return None, None
    code = os.waitstatus_to_exitcode(wait_status)
    return (code, None) if code >= 0 else (None, how_ended(code))
