"""A process by a name that its machine can look up: has it ended?

Owns that name.  It tells of the life of a process only to those on the same boot of the same
machine that see the same processes (a container sees its own); to all others it says nothing.
"""

from __future__ import annotations

import os

from danaus.core import proc_root

_STATE, _STARTED = 0, 19  # in ``stat_fields``
_OVER = ("Z", "X", "x")


def own_name() -> str:
    """Return the name of this process; empty where the machine gives none."""
    where, stat = _here(), _stat(os.getpid())
    return f"{where} {os.getpid()} {stat[_STARTED]}" if where and stat else ""


def has_ended(name: str) -> bool:
    """Tell whether a process is known to have ended; not known is no."""
    where, _, rest = name.rpartition(" ")
    where, _, pid = where.rpartition(" ")
    if not where or where != _here() or not pid.isdigit():
        return False
    stat = _stat(int(pid))
    return stat is None or stat[_STARTED] != rest or stat[_STATE] in _OVER


def _here() -> str:
    """Return what is the same for all who see the same processes."""
    try:
        boot = (proc_root.ROOT / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(proc_root.ROOT / 'self/ns/pid')}"
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    try:
        return proc_root.stat_fields(pid)
    except OSError:
        return None
