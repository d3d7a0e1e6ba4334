"""Where Linux tells of processes and of the machine; other systems have no such place.

Owns ``ROOT``, below which all of it is read, how a process's line there is read, and what a process
finds out about itself without.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

ROOT = Path("/proc")
_OWN_DESCRIPTORS = Path("/dev/fd")


def is_there() -> bool:
    """Tell whether this system has it."""
    return (ROOT / "self").exists()


def stat_fields(pid: int) -> list[str]:
    """Return what is told of a process in one line (``man 5 proc_pid_stat``), from its state on.

    Raises:
        OSError: There is no such process, or nothing is to be read.
    """
    text = (ROOT / str(pid) / "stat").read_text(errors="replace")
    # The name before the state is in parentheses and may hold anything, parentheses too.
    return text.rpartition(")")[2].split()


def descriptor_path(descriptor: int) -> str:
    """Return a path by which this process opens what one of its descriptors is."""
    return str(_descriptors() / str(descriptor))


def own_descriptors() -> list[int]:
    """Return the descriptors that this process has open, the listing's own among them."""
    return [int(name) for name in os.listdir(_descriptors())]


def num_own_threads() -> int:
    """Return how many threads this process has; without ``ROOT``, those that Python knows."""
    try:
        return len(os.listdir(ROOT / "self" / "task"))
    except OSError:
        return threading.active_count()


def free_bytes() -> int:
    """Return how much memory could be had; without ``ROOT``, half of what the machine has."""
    try:
        lines = (ROOT / "meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    found = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 1024 * next(found, 0)


def _descriptors() -> Path:
    path = ROOT / "self" / "fd"
    return path if path.exists() else _OWN_DESCRIPTORS
