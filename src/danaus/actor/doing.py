"""Work that goes on in the background, for callers of all kinds.

Owns ``Doing``: the future of what Monarch's users know as a coroutine.  Unlike one it has begun
already, and need not be waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from danaus.actor.future import Future

T = TypeVar("T")


class Doing(Future[T], Coroutine[Any, Any, T]):
    """A future that ``asyncio.run`` and ``create_task`` take as well: they ask for a coroutine.

    Each task that it is given to waits for it; it can be awaited and asked besides, as any future.
    """

    __slots__ = ("_driven",)

    def __init__(
        self,
        what: str,
        *,
        on_cancel: Callable[[], None] | None = None,
        decode: Callable[[Any], T] | None = None,
    ) -> None:
        super().__init__(what, on_cancel=on_cancel, decode=decode)
        self._driven: dict[asyncio.Task[Any] | None, Generator[Any, None, T]] = {}

    def send(self, value: None) -> Any:
        """Go on, as a coroutine does: until there is something to wait for."""
        return self._mine().send(value)

    def throw(self, error: Any, value: Any = None, trace: Any = None, /) -> Any:
        """Raise this where the task waits, as in a coroutine."""
        return self._mine().throw(error if value is None else value)

    def close(self) -> None:
        """Have no task wait any more; what goes on does so."""
        driven, self._driven = self._driven, {}
        for each in driven.values():
            each.close()

    def _mine(self) -> Generator[Any, None, T]:
        """Return the wait of the task that runs; it begins where there is none."""
        task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
        found = self._driven.get(task)
        if found is None:
            found = self._driven[task] = self.__await__()
        return found
