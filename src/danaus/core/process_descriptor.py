"""A descriptor of one process: readable once it has ended, whoever gets its pid afterwards.

Owns the two ways in which a kernel is asked for one: a pidfd on Linux; elsewhere (macOS, the BSDs)
a kqueue that waits for the end.
"""

from __future__ import annotations

import os
import select
import signal
from typing import Any

_kernel: Any = select  # whose types are those of the machine that the types are checked on


def open_process(pid: int) -> int:
    """Return a descriptor of a living process, which the caller closes; a poll tells of its end.

    Raises:
        ProcessLookupError: There is no such process; without pidfd, also that it has ended and
            nobody has asked for its status.
        OSError: No descriptor is free.
    """
    if hasattr(os, "pidfd_open"):
        descriptor: int = os.pidfd_open(pid)
        return descriptor
    with _kernel.kqueue() as queue:
        ended = (_kernel.KQ_FILTER_PROC, _kernel.KQ_EV_ADD, _kernel.KQ_NOTE_EXIT)
        queue.control([_kernel.kevent(pid, *ended)], 0)
        return os.dup(queue.fileno())


def signal_process(descriptor: int, pid: int, number: int) -> None:
    """Send a signal to the process of a descriptor, whose pid is ``pid``.

    Raises:
        ProcessLookupError: It has ended.
        OSError: It may not be signalled.
    """
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(descriptor, number)
        return
    # Between the look and the signal another may get the pid: such a kernel has nothing better.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if poll.poll(0):
        raise ProcessLookupError(f"process {pid} has ended")
    os.kill(pid, number)
