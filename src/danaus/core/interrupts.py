"""Keeping signals out of code that must not be left half-way.

Python runs the handlers of signals on the main thread, between any two of its instructions: such a
handler may raise there, or call what the main thread is in the middle of.

Owns ``is_undisturbed`` and ``HeldInterrupts``.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any, Self

# What ``signal`` wraps: it spends ten times as long on names for what it returns.
_signals = importlib.import_module("_signal" if find_spec("_signal") else "signal")
_set_handler: Callable[..., Any] = _signals.signal
_handler_of: Callable[..., Any] = _signals.getsignal
_SIGINT = int(signal.SIGINT)

_OTHERS = tuple(
    int(getattr(signal, name))
    for name in (
        *("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCHLD"),
        *("SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGCONT", "SIGTSTP", "SIGXCPU", "SIGPWR"),
    )
    if hasattr(signal, name)
)
_ident = threading.get_ident
_main_ident = threading.main_thread().ident
_LOOPS = ("_sighandler_noop", "_Loop__sighandler")  # of loops that handle them in their turns
_HARMLESS = (signal.SIG_DFL, signal.SIG_IGN, None)


def is_main_thread() -> bool:
    """Tell whether this is the thread on which Python runs handlers of signals."""
    return _ident() == _main_ident


def is_undisturbed() -> bool:
    """Tell whether no handler of a usual signal but SIGINT's can run on this thread."""
    return not is_main_thread() or all(_is_harmless(_handler_of(each)) for each in _OTHERS)


def _is_harmless(handler: Any) -> bool:
    return handler in _HARMLESS or getattr(handler, "__name__", "") in _LOOPS


class HeldInterrupts:
    """A ``with`` block in which no handler of SIGINT runs: on the main thread it does afterwards.

    Handlers that only C knows of are not held, and gone afterwards where Python has one as well.

    Args:
        then: Called at once when there is one.

    Attributes:
        is_interrupted: Whether there was one.

    Raises:
        KeyboardInterrupt: Afterwards; or whatever else the handler raises.
    """

    __slots__ = ("_before", "_mine", "_then", "is_interrupted")

    def __init__(self, then: Callable[[], object] | None = None) -> None:
        self._then = then
        self._before: Any = None
        self.is_interrupted = False

    def __enter__(self) -> Self:
        if _ident() == _main_ident:  # as ``is_main_thread``: each message that is sent asks
            before = _handler_of(_SIGINT)
            if callable(before):
                self._before, self._mine = before, self._note
                _set_handler(_SIGINT, self._mine)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._before is not None:
            if _handler_of(_SIGINT) is self._mine:  # nobody has set another meanwhile
                _set_handler(_SIGINT, self._before)
            if self.is_interrupted:
                self._before(_SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_interrupted = True
        if self._then is not None:
            self._then()
