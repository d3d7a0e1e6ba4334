"""What a worker does when it is asked to end by SIGTERM: by a scheduler, or by a person.

Owns ``on_terminate``.  Unless somebody in the process wants to be told, SIGTERM ends it at once,
as ever.  Whoever is told decides when it ends, within the time that the sender gives it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

Job = Callable[[], None]
_told: Job | None = None


def on_terminate(call: Job) -> None:
    """Have SIGTERM lead to this, on the main thread, in place of ending this process."""
    global _told
    _told = call


def arm(later: Callable[[Job], None]) -> None:
    """Take SIGTERM from now on; on the main thread of a worker.

    Args:
        later: Has the main thread do something once it comes to it; called within a signal.
    """

    def take(number: int, _frame: FrameType | None) -> None:
        if _told is not None:
            later(_told)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, take)
