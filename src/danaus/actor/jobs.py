"""What an actor's own thread is to do; while there is nothing it reads the connections."""

from __future__ import annotations

import queue
from typing import Generic, TypeVar

from danaus.wire.reading import SharedReading

T = TypeVar("T")


class Jobs(Generic[T]):
    """A queue from any thread to one.

    Args:
        reading: What that thread does while it waits, if anything.
    """

    def __init__(self, reading: SharedReading | None) -> None:
        self._reading = reading
        self._is_leading = False
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()

    def put(self, job: T) -> None:
        """Add a job."""
        self._queue.put(job)
        if self._is_leading and self._reading is not None:
            self._reading.ring()

    def get(self) -> T:
        """Wait for the next job and return it."""
        if self._reading is not None and self._queue.empty():
            self._is_leading = True
            self._reading.lead_idly(self._queue.empty)
            self._is_leading = False
        return self._queue.get()
