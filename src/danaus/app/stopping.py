"""How a person ends a run: Ctrl-C, a polite signal, a terminal that is closed.

Owns ``StopSignals``.  A signal is written down and asked for, so that it interrupts nothing half
way; the loop that shows the run asks often.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Self

from danaus.core import proc_root

STOPS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the terminal was closed",
}
"""The signals that end a run, in words."""


class StopSignals:
    """Take note of signals that ask for the end, for as long as the context is open.

    A signal that is ignored (``nohup``, a job in the background) stays so.  Off the main thread,
    which alone may handle signals, there is nothing to take note of.

    Args:
        detached: A terminal that is closed does not end the run; nothing is shown any more.
    """

    def __init__(self, *, detached: bool = False) -> None:
        self._detached = detached
        self._asked: list[signal.Signals] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Whoever asked twice does not wait: the way out must not be cut short half way.
            signal.signal(number, signal.SIG_IGN if self.hurried else handler)
        self._before.clear()

    @property
    def asked(self) -> signal.Signals | None:
        """What asked for the end first, None if nothing did."""
        return self._asked[0] if self._asked else None

    @property
    def hurried(self) -> bool:
        """Whether the end was asked for again."""
        return len(self._asked) > 1

    def hung_up(self) -> None:
        """The terminal does not take what is written any more."""
        self._take(signal.SIGHUP, None)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _write_to_nobody()
            if self._detached:
                return
        self._asked.append(signal.Signals(number))


def _write_to_nobody() -> None:
    """Send to nowhere what would go to a terminal that is gone; files and pipes are kept."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if _was_terminal(stream.fileno()):
                os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            continue
    os.close(nowhere)


def _was_terminal(descriptor: int) -> bool:
    return os.readlink(proc_root.descriptor_path(descriptor)).startswith("/dev/pts/")
