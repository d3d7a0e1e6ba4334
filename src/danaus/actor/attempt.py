"""The one place where whatever users' code raises is caught: endpoint dispatch.

Owns ``Attempt`` for what an endpoint may raise, ``exits`` for ``sys.exit`` in it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self


class Attempt:
    """A ``with`` block that keeps an ``Exception`` instead of raising it.

    What is no ``Exception`` (``SystemExit``, a cancelled task) goes on its way.
    """

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
        if not isinstance(error, Exception):
            return False
        self.error = error
        return True


@contextlib.contextmanager
def exits(end: Callable[[int], object]) -> Iterator[None]:
    """Give the code of a ``sys.exit`` within to ``end``: a thread would swallow it, a loop stop."""
    try:
        yield
    except SystemExit as left:
        code = left.code
        if not isinstance(code, int | None):  # words, for which Python's own code is 1
            sys.stderr.write(f"{code}\n")
            code = 1
        end(code or 0)
