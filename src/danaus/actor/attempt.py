"""The one place where whatever users' code raises is caught: endpoint dispatch.

Owns ``Attempt`` for what an endpoint may raise, ``exits`` for ``sys.exit`` in it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Attempt:
    """A ``with`` block that keeps an ``Exception`` instead of raising it.

    Being cancelled counts as one: whoever waits must hear of it, whether the caller, the end of
    the process, the code itself or a future that it waited for was the cause.  So does whatever
    else is no ``Exception`` (a test framework's failures, a group with such in it, what a generator
    has leaked).  What ends the process goes on its way.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            return False
        if isinstance(error, asyncio.CancelledError):
            self.error = RuntimeError(f"it was cancelled: {error}").with_traceback(trace)
        elif isinstance(error, Exception):
            self.error = error
        elif not isinstance(error, _ENDS):
            self.error = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(trace)
        return self.error is not None


_ENDS = (SystemExit, KeyboardInterrupt)


class exits:  # noqa: N801  # as contextlib's own managers are called
    """Give the code of a ``sys.exit`` within to ``end``: a thread would swallow it, a loop stop.

    A ``KeyboardInterrupt`` ends the process as well, with the code of a shell.
    """

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[int], object]) -> None:
        self._end = end

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, KeyboardInterrupt):
            self._end(128 + signal.SIGINT)
        elif isinstance(error, SystemExit):
            code = error.code
            if not isinstance(code, int | None):  # words, for which Python's own code is 1
                sys.stderr.write(f"{code}\n")
                code = 1
            self._end(code or 0)
        else:
            return False
        return True
