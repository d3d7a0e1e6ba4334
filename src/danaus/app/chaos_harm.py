"""What a worker does to itself when it is told to die, to hang, to be slow or to lose the time.

Owns one function per kind; those that damage bits are ``chaos_damage``'s, those that need the
kernel's limits are ``chaos_kernel``'s.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, NoReturn

from danaus.app.chaos_inside import Struck
from danaus.core.errors import ConfigError

Say = Callable[[], bool]
"""Writes the fault down, just before it strikes; false: it has struck before, so leave it."""

OOM_ROOM_BYTES = 64 << 20
_OOM_PROOF = 4
"""So many times its limit is allocated before the limit counts as not being one."""
_MUTEX_BYTES = 64
_never = threading.Event()


def send_self(number: signal.Signals) -> None:
    """Send this process a signal."""
    os.kill(os.getpid(), number)


def touch_null() -> None:
    """Write to the address 0, as a faulty extension does: the kernel sends SIGSEGV."""
    ctypes.memset(0, 0, 1)


def exhaust_memory() -> NoReturn:
    """Allocate under a limit of ``OOM_ROOM_BYTES`` until the kernel ends this process.

    Raises:
        ConfigError: The limit does not hold.
    """
    held = []
    for _ in range(_OOM_PROOF * OOM_ROOM_BYTES >> 20):
        block = mmap.mmap(-1, 1 << 20)
        block.write(b"\1" * len(block))
        held.append(block)
    raise ConfigError(
        f"this process got {len(held)} MiB under a limit of {OOM_ROOM_BYTES >> 20} MiB",
        "a kernel whose memory cgroups hold",
    )


def hold_interpreter(for_s: float | None) -> None:
    """Wait in a call of C that keeps the interpreter's lock: no other thread runs meanwhile.

    A mutex that its holder asks for again: unlike a sleep, no signal ends that wait.
    """
    libc = ctypes.PyDLL(None)  # unlike CDLL it keeps the lock
    mutex = ctypes.create_string_buffer(_MUTEX_BYTES)
    libc.pthread_mutex_lock(mutex)
    if for_s is None:
        libc.pthread_mutex_lock(mutex)
        return
    at = time.clock_gettime(time.CLOCK_REALTIME) + for_s
    libc.pthread_mutex_timedlock(mutex, (ctypes.c_long * 2)(int(at), int(at % 1.0 * 1e9)))


def wait(for_s: float | None) -> None:
    """Block this thread, and this thread alone: heartbeats go on."""
    _never.wait(for_s)


def starve(work: Struck, say: Say, for_s: float | None) -> None:
    """Let the next batch of this process's data come late, or never."""
    data = work.trainer.data
    batch = data.batch

    def late(step: int, microbatch: int) -> Any:
        replace(data, "batch", batch)
        if say():
            wait(for_s)
        return batch(step, microbatch)

    replace(data, "batch", late)


def slow_down(work: Struck, factor: float, for_s: float) -> None:
    """Make the computing of this process take so many times as long, for a while."""
    compute = work.compute_leaf
    over_at = time.monotonic() + for_s

    def slow(step: int, microbatches: range) -> Any:
        began = time.monotonic()
        gradient = compute(step, microbatches)
        if began >= over_at:
            replace(work, "compute_leaf", compute)
        else:
            wait((factor - 1.0) * (time.monotonic() - began))
        return gradient

    replace(work, "compute_leaf", slow)


def replace(owner: object, name: str, value: object) -> None:
    """Put something else in the place of a method, of one object or of a class."""
    setattr(owner, name, value)


def jump_clock(seconds: float, which: Literal["day", "monotonic"]) -> None:
    """Have this process's clock show another time from now on.

    A time namespace cannot be changed under a process that runs, so that what Python's ``time``
    answers is moved instead.

    Args:
        seconds: Forward, or back if it is negative.
        which: The time of day, or the steady clock (as after a suspended machine).
    """
    name = {"day": "time", "monotonic": "monotonic"}[which]
    read = getattr(time, name)

    def moved() -> float:
        now: float = read()
        return now + seconds

    replace(time, name, moved)
