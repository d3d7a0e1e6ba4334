"""What one session brings, in order: for the thread that reads, or for the connections' loop."""

from __future__ import annotations

from collections.abc import Callable

from danaus.actor.loop_thread import LoopThread
from danaus.wire.session import Session


class Arrivals:
    """Sends to the connections' loop what only that may handle.

    Called by whoever reads the session, one at a time.

    Args:
        io: The connections' loop.
        session: Ends where a message cannot be handled: it would be lost otherwise.
    """

    def __init__(self, io: LoopThread, session: Session) -> None:
        self._io = io
        self._session = session
        self._num_deferred = 0
        self._num_handled = 0

    @property
    def may_be_handled(self) -> bool:
        """Tell whether everything before is handled: the next may be, where it does not matter."""
        return self._num_deferred == self._num_handled

    def handle(self, function: Callable[..., object], *args: object) -> None:
        """Have the connections' loop call a function, after all that was handled before."""
        if self._io.is_current and self.may_be_handled:
            function(*args)
        else:
            self._num_deferred += 1
            self._io.post(self._handle, function, args)

    def _handle(self, function: Callable[..., object], args: tuple[object, ...]) -> None:
        try:
            function(*args)
        except BaseException:
            self._session.end("what receives its messages failed")
            raise
        finally:
            self._num_handled += 1
