"""What the quorum client's thread tells the thread that trains: changes and aborts.

Owns ``Notices``: set by one thread, read by the other; nothing else crosses between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from danaus.ft import step_events as on
from danaus.quorum.messages import AbortExchange, ChangePending, Epoch


class Notices:
    """What the quorum client's thread tells the training thread."""

    def __init__(self) -> None:
        self.on_abort: Callable[[Epoch, str], None] = lambda _epoch, _reason: None
        self._lock = threading.Lock()
        self._change: ChangePending | None = None
        self._abort: AbortExchange | None = None
        self._disbanded: str | None = None

    def change_pending(self, told: ChangePending) -> None:
        """The service: turn to me after this step (Q-2)."""
        with self._lock:
            self._change = told

    def abort_exchange(self, told: AbortExchange) -> None:
        """The service: members are dead, leave what you are blocked in (Q-5)."""
        with self._lock:
            self._abort = told
        self.on_abort(told.epoch, told.reason)

    def disband(self, reason: str) -> None:
        """No epoch stands any more, nor will one: the replica has lost a rank (H-3)."""
        with self._lock:
            self._disbanded = reason

    def aborted(self, epoch: Epoch) -> str | None:
        """Return why ``epoch`` has ended, or None while it stands."""
        with self._lock:
            told = self._abort
            if self._disbanded is not None:
                return self._disbanded
        return told.reason if told is not None and told.epoch >= epoch else None

    def take_change(self, epoch: Epoch | None) -> on.ChangeKnown | None:
        """Return a change of ``epoch`` once; one of an epoch that is yet to be followed waits."""
        with self._lock:
            told = self._change
            if told is None or told.epoch != epoch:
                return None
            self._change = None
        return on.ChangeKnown(told.epoch, told.reason)
