"""``async`` functions that can be called by everybody: ``returns_future``.

Owns ``Deferred``, the future of a body that has not begun.

Invariants:
    The body runs once at most, where it is first asked for: on the loop that awaits it, or on the
        thread that calls ``get``, which has no loop then.
    A-4: whoever asks hears how it came out.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

from danaus.actor.attempt import Attempt
from danaus.actor.future import Future
from danaus.core.errors import DeadlinePassed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Body = Coroutine[Any, Any, T]


class Deferred(Future[T]):
    """The future of a body that begins when somebody first asks for its value.

    Args:
        what: What it is, for messages.
        body: The coroutine.
    """

    __slots__ = ("_body", "_me", "_task")

    def __init__(self, what: str, body: Body[T]) -> None:
        super().__init__(what)
        self._body: Body[T] | None = body
        self._me = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None

    def __del__(self) -> None:
        self._close()

    def get(self, timeout: float | None = None) -> T:
        """Run the body, if nobody has before, and return its value.

        Args:
            timeout: Seconds; whoever runs the body cancels it then, others only wait no more.
        """
        self._run_here(timeout)
        return super().get(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Do as ``get``, and return the exception, None if there is a value."""
        self._run_here(timeout)
        return super().exception(timeout)

    def cancel(self) -> bool:
        """Give up: a body that has not begun never does, one that has goes on unheard."""
        self._close()
        return super().cancel()

    def as_asyncio(self) -> asyncio.Future[T]:
        """Return an asyncio future of the running loop, on which the body runs from now on."""
        body = self._take()
        if body is not None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._drive(body), context=self._me)
        return super().as_asyncio()

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call ``callback(self)`` once it has run, on a thread of its own if nobody else asks."""
        super().add_done_callback(callback)
        self._run_beside(self._take())

    async def wait(self) -> None:
        """Wait until it has run, whatever it came to."""
        body = self._take()
        if body is not None:
            await self._drive(body)
        await super().wait()

    def __await__(self) -> Generator[Any, None, T]:
        body = self._take()
        if body is not None:
            yield from self._drive(body).__await__()
        return (yield from super().__await__())

    def _take(self) -> Body[T] | None:
        """Return the body to the only one who runs it."""
        with self._lock:
            body, self._body = self._body, None
        return body

    def _close(self) -> None:
        """Never begin."""
        body = self._take()
        if body is not None:
            body.close()

    def _run_here(self, limit_s: float | None) -> None:
        body = self._take()
        if body is None:
            return
        if asyncio._get_running_loop() is not None:  # this thread cannot run another loop
            self._run_beside(body)
        else:
            self._me.run(asyncio.run, self._drive(body, limit_s))

    def _run_beside(self, body: Body[T] | None) -> None:
        if body is not None:
            run = functools.partial(asyncio.run, self._drive(body))
            threading.Thread(target=self._me.run, args=(run,), name=self.what, daemon=True).start()

    async def _drive(self, body: Body[T], limit_s: float | None = None) -> None:
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                with Attempt() as attempt:
                    value = await body
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError(f"{self.what} was cancelled")
            if limit.expired():
                self.set_error(DeadlinePassed(waited_for=self.what, limit_s=limit_s or 0.0))
            elif attempt.error is not None:
                self.set_error(attempt.error)
            else:
                self.set_value(value)
        finally:
            self.cancel()  # of what is settled nothing comes


def returns_future(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Future[R]]:
    """Make an ``async`` function one that returns a ``Future``, for plain and ``async`` callers.

    Its body begins when the future is first awaited or asked: there, as the caller.

    Raises:
        TypeError: The function is not ``async``.
    """
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is no async function: its value can be returned as it is")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return Deferred(function.__qualname__, function(*args, **kwargs))

    return call
