"""Memory for large parts that are received, used again once nothing refers to them any more.

The kernel clears fresh memory, which takes about as long as filling it with what has come.  What is
used again is not cleared: whoever gets it sees it only once it is full.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import mmap
import weakref

POOLED_BYTES = 1 << 20
"""From here on memory is worth keeping."""
_GRAIN_BYTES = 2 << 20  # a huge page
_MOST_FREE_BYTES = 256 << 20

# Filled from finalizers, which may run in the middle of anything: whatever is done is atomic.
_free: collections.deque[mmap.mmap] = collections.deque()


def received_part(size: int) -> memoryview:
    """Return ``size`` writable bytes, whatever they hold."""
    mapped = _taken(size) or _fresh(size)
    memory = (ctypes.c_ubyte * size).from_buffer(mapped)
    weakref.finalize(memory, _free.append, mapped).atexit = False
    return memoryview(memory).cast("B")


def _taken(size: int) -> mmap.mmap | None:
    """Return kept memory that fits, if there is some; let go of what is too much."""
    fitting = None
    kept = 0
    for _ in range(len(_free)):
        try:
            each = _free.popleft()
        except IndexError:  # another loop was quicker
            break
        if fitting is None and size <= len(each) <= 2 * size + _GRAIN_BYTES:
            fitting = each
        elif kept + len(each) <= _MOST_FREE_BYTES:
            kept += len(each)
            _free.append(each)
    return fitting


def _fresh(size: int) -> mmap.mmap:
    mapped = mmap.mmap(-1, -(-size // _GRAIN_BYTES) * _GRAIN_BYTES)
    ask_for_huge_pages(mapped)
    return mapped


def ask_for_huge_pages(mapped: mmap.mmap) -> None:
    """Have the kernel use huge pages for this memory, if it has any."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            mapped.madvise(mmap.MADV_HUGEPAGE)
