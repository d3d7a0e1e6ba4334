"""Answers one by one: what ``stream`` gives, and waiting for several futures.

Owns ``Replies`` and ``wait_all``.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from danaus.actor.future import Future

R = TypeVar("R")
T = TypeVar("T")


class Replies(Generic[R]):
    """Futures in the order in which the answers arrive: the first is the first to be settled.

    Iterate with ``for`` and ask each for its value; or with ``async for``, which waits for each
    answer first.  Every point answers once, with a value or an error (A-4).
    """

    def __init__(self, futures: Sequence[Future[R]]) -> None:
        self._futures = futures
        self._next = iter(futures)

    def __iter__(self) -> Iterator[Future[R]]:
        return self

    def __next__(self) -> Future[R]:
        return next(self._next)

    def __len__(self) -> int:
        return len(self._futures)

    def __aiter__(self) -> AsyncIterator[Future[R]]:
        return self._arriving()

    async def _arriving(self) -> AsyncIterator[Future[R]]:
        for future in self._next:
            await future.wait()
            yield future


def wait_all(futures: Iterable[Future[T]]) -> Future[list[T]]:
    """Return a future of all values, in the order of ``futures``.

    It is settled once all are.  It raises an ``ExceptionGroup`` with every error; cancelling it
    cancels all.
    """
    waiting = list(futures)

    def cancel() -> None:
        for each in waiting:
            each.cancel()

    together: Future[list[T]] = Future(
        f"{len(waiting)} futures", on_cancel=cancel, decode=lambda _: _values(waiting)
    )
    if not waiting:
        together.set_value(None)
    left, lock = [len(waiting)], threading.Lock()

    def settled(_: Future[T]) -> None:
        with lock:
            left[0] -= 1
            if left[0]:
                return
        together.set_value(None)

    for each in waiting:
        each.add_done_callback(settled)
    return together


def _values(futures: Sequence[Future[T]]) -> list[T]:
    errors = [error for error in (each.exception() for each in futures) if error is not None]
    if errors:
        raise BaseExceptionGroup(f"{len(errors)} of {len(futures)} futures failed", errors)
    return [each.result() for each in futures]
