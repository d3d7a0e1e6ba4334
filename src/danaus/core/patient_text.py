"""Text output that a disk without room does not end: what does not fit is lost.

Owns ``patient_text``, for what is only told: the logs of workers, what a run shows.
"""

from __future__ import annotations

import errno
import io
from typing import Any, TextIO

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the kernel says where there is no room, on the disk or in the quota."""


class _PatientFile(io.FileIO):
    def __init__(self, fd: int, losing: tuple[int, ...] | None) -> None:
        super().__init__(fd, "w", closefd=False)
        self._losing = losing

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if self._losing is not None and error.errno not in self._losing:
                raise
            return memoryview(data).nbytes


def patient_text(
    fd: int, *, losing: tuple[int, ...] | None = DISK_FULL, encoding: str = "utf-8"
) -> TextIO:
    """Return a stream of lines on a descriptor, which stays open.

    Args:
        fd: The descriptor.
        losing: Which errors lose what is written (``errno``); None: all.  Others are raised.
        encoding: Of the text; what it cannot say is replaced.
    """
    buffer = io.BufferedWriter(_PatientFile(fd, losing))
    return io.TextIOWrapper(buffer, encoding=encoding, errors="replace", line_buffering=True)
