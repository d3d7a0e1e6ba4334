"""That what was written lies on the disk, and not in a cache that loses it with the power.

Owns ``sync``.  ``fsync`` means that on Linux; on macOS it only hands the data to the disk, which
keeps them in a cache of its own, and another call has the disk write them down.
"""

from __future__ import annotations

import errno
import fcntl
import os

# Said by a file system that has no disk to ask, one of another machine, say: fsync is its best.
_UNKNOWN = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


def sync(descriptor: int) -> None:
    """Return once what was written to a file, or the names in a folder, outlive a loss of power.

    Raises:
        OSError: The disk failed.
    """
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
        else:
            return
    os.fsync(descriptor)
