"""What a call of the ``Manager`` returns: something to wait for.

Owns ``Pending``.  A call that failed completes as well: what went wrong is the manager's to tell
(``errored``), and the step's not to commit.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch


class Pending:
    """A call on its way; completes exactly once.

    Args:
        value: What ``get_future`` yields: the tensor, or the list of them.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the tensors hold the result, or the step has failed.

        Args:
            timeout: Seconds, or a ``timedelta``; None: for as long as the manager's limits let it.

        Returns:
            Whether it is complete; False only where the time ran out.
        """
        return self._done.wait(None if timeout is None else seconds_of(timeout))

    def is_completed(self) -> bool:
        """Tell whether it is complete."""
        return self._done.is_set()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the tensors; what is chained to it may run on the manager's thread."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._done.is_set():
                    self._future.set_result(self._value)
            return self._future

    def complete(self) -> None:
        """Let everyone go on; the manager calls this."""
        with self._lock:
            self._done.set()
            future = self._future
        if future is not None and not future.done():
            future.set_result(self._value)


def seconds_of(limit: timedelta | float) -> float:
    """Return a duration in seconds."""
    return limit.total_seconds() if isinstance(limit, timedelta) else float(limit)
