"""Where the thread that trains is told who it is next, by the thread that hears the controller.

Owns ``Orders``.  A process that has lost a sibling ends its life under one name, and waits here for
the order that gives it the next one (H-3).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from danaus.app.worker import WorkerJob
from danaus.core.errors import DeadlinePassed

GIVE_LIMIT_S = 5.0
"""How long the training thread may take to leave what it is at."""
WAIT_LIMIT_S = 600.0
"""How long it waits for an order; the controller hears of a death at once, or ends this process.
Of a detached run another may have to be started first."""


class Orders:
    """The newest order, and whether it was taken up; safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given: WorkerJob | None = None
        self._end: Callable[[str], None] | None = None
        self._taken = self._is_over = False

    def give(self, job: WorkerJob, limit_s: float = GIVE_LIMIT_S) -> None:
        """End the life in hand and have the next one begin with ``job``; return once it does.

        Raises:
            DeadlinePassed: It did not come to that: it is over, or blocked.
        """
        with self._changed:
            self._given, self._taken = job, False
            end = self._end
            self._changed.notify_all()
        if end is not None:
            end(f"{job.replica_id} has lost rank {job.lost_rank}")
        with self._changed:
            settled = self._changed.wait_for(lambda: self._taken or self._is_over, limit_s)
        if not settled or self._is_over:
            raise DeadlinePassed(f"{job.replica_id} to take up #{job.incarnation}", limit_s)

    def live(self, end: Callable[[str], None] | None) -> None:
        """A life begins that ``end`` ends, from any thread; None: none is led now."""
        with self._changed:
            self._end = end
            given = self._given if end is not None and not self._taken else None
        if given is not None and end is not None:  # it came before there was anything to end
            end(f"{given.replica_id} has lost rank {given.lost_rank}")

    @property
    def is_given(self) -> bool:
        """Tell whether there is an order that was not taken up."""
        with self._changed:
            return self._is_waiting()

    def take(self, limit_s: float = WAIT_LIMIT_S) -> WorkerJob:
        """Wait for the next order.

        Raises:
            DeadlinePassed: None came.
        """
        with self._changed:
            has_come = self._changed.wait_for(self._is_waiting, limit_s)
            if self._given is None or not has_come:
                raise DeadlinePassed("an order to go on without a sibling", limit_s)
            self._taken = True
            self._changed.notify_all()
            return self._given

    def _is_waiting(self) -> bool:
        return self._given is not None and not self._taken

    def close(self) -> None:
        """Nothing will be taken up any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
