"""Memory without a name, which processes of one machine share by its descriptor.

Owns what Linux alone has of it: ``memfd``, and the seals that keep its size.  Without a name it
goes with the last process that has it, however that ends; sealed, it can be mapped without fear of
whom it comes from.  macOS's own kind has neither, so that there none is to be had.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Any

_os: Any = os  # whose types are those of the machine that the types are checked on
_fcntl: Any = fcntl


def unnamed_memory(name: str, num_bytes: int) -> int:
    """Return a descriptor of fresh memory that keeps its size; the caller closes it.

    Args:
        name: What is shown of it to people.
        num_bytes: How much.

    Raises:
        OSError: There is no memory or no descriptor left, or this system has no such memory.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this system has no memory without a name")
    fd: int = _os.memfd_create(name, _os.MFD_CLOEXEC | _os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, num_bytes)
        fcntl.fcntl(fd, _fcntl.F_ADD_SEALS, _seals())
    except OSError:
        os.close(fd)
        raise
    return fd


def keeps_its_size(fd: int) -> bool:
    """Tell whether what a descriptor stands for can neither shrink nor grow.

    Raises:
        OSError: It is no memory of this kind.
    """
    if not hasattr(os, "memfd_create"):
        return False
    sealed: int = fcntl.fcntl(fd, _fcntl.F_GET_SEALS)
    return sealed & _seals() == _seals()


def _seals() -> int:
    seals: int = _fcntl.F_SEAL_SHRINK | _fcntl.F_SEAL_GROW | _fcntl.F_SEAL_SEAL
    return seals
