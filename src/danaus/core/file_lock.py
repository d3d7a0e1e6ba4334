"""A lock on an open file, which the kernel lets go with its holder (flock)."""

from __future__ import annotations

import fcntl
import time

from danaus.core.clock import Deadline

_LOOK_S = 0.005


def take_lock(fd: int, *, limit_s: float = 0.0) -> bool:
    """Lock a file for this descriptor alone; tell whether that was to be had.

    Args:
        fd: The open file or folder; closing it lets go.
        limit_s: How long to wait for whoever holds it.
    """
    deadline = Deadline.after(limit_s)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or the file system knows no locks
            if deadline.passed:
                return False
            time.sleep(_LOOK_S)
        else:
            return True
