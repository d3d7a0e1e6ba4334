"""The one place where whatever users' code raises is caught: endpoint dispatch."""

from __future__ import annotations

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
