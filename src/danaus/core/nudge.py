"""A descriptor that any thread makes readable, so that another that polls it looks up.

Owns ``Nudge``: a pipe, which every system has.
"""

from __future__ import annotations

import os

_TAKEN_BYTES = 4096


class Nudge:
    """Readable from ``give`` to ``take``.

    ``close`` runs beside neither of the two: whoever uses it from several threads has a lock.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """Return the descriptor to poll; -1 once closed."""
        return self._read

    def give(self) -> bool:
        """Make it readable; return False, and do nothing, where it was closed."""
        if self._write < 0:
            return False
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # full: it is readable for long
        return True

    def take(self) -> None:
        """Make it unreadable again; whoever waits looks once for any number of ``give``."""
        try:
            while len(os.read(self._read, _TAKEN_BYTES)) == _TAKEN_BYTES:
                pass
        except BlockingIOError:
            pass  # nobody has given any

    def close(self) -> None:
        """Give both descriptors back; may be called twice."""
        descriptors, self._read, self._write = (self._read, self._write), -1, -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)
