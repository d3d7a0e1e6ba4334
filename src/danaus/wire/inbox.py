"""Where arrived things wait for the one task that takes them."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Generic, TypeVar

from danaus.core.errors import DanausError

T = TypeVar("T")

INBOX_BYTES = 64 << 20


class Inbox(Generic[T]):
    """A queue that asks for a pause when it holds too much, and ends with an error.

    Args:
        on_full: Called with true when more than ``INBOX_BYTES`` wait, with false when not any more.
    """

    def __init__(self, on_full: Callable[[bool], None]) -> None:
        self._on_full = on_full
        self._items: collections.deque[tuple[T, int]] = collections.deque()
        self._bytes = 0
        self._ended: DanausError | None = None
        self._arrival: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Tell whether more than ``INBOX_BYTES`` wait."""
        return self._bytes > INBOX_BYTES

    def put(self, item: T, size_bytes: int) -> None:
        """Add an item; it counts ``size_bytes``."""
        self._items.append((item, size_bytes))
        self._account(size_bytes)
        self._wake()

    async def take(self) -> T:
        """Wait for the next item and return it; after the last one raise what ended the inbox."""
        while not self._items:
            if self._ended is not None:
                raise fresh(self._ended)
            if self._arrival is not None:
                raise RuntimeError("another task is receiving here")
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        return self._pop()

    def take_now(self) -> list[T]:
        """Return everything that waits."""
        taken = []
        while self._items:
            taken.append(self._pop())
        return taken

    def end(self, error: DanausError) -> None:
        """Let ``take`` raise ``error`` once it is empty; the first error counts."""
        self._ended = self._ended or error
        self._wake()

    def _pop(self) -> T:
        item, size_bytes = self._items.popleft()
        self._account(-size_bytes)
        return item

    def _account(self, change: int) -> None:
        was_full = self.is_full
        self._bytes += change
        if self.is_full != was_full:
            self._on_full(self.is_full)

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def fresh(error: DanausError) -> DanausError:
    """Return an equal error to raise: one object raised twice collects foreign tracebacks."""
    return type(error)(**error.facts())
