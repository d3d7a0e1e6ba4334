"""The one future: of a call, of a spawn, of a stop.

``Future`` is settled once, from any thread, and can be waited for from plain threads (``get``)
and from any event loop (``await``), more than once.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

from danaus.actor.attempt import Attempt
from danaus.actor.handover import handover_to
from danaus.core.errors import DeadlinePassed
from danaus.wire.reading import SharedReading, about_to_block, is_handling_here

T = TypeVar("T")


class _Waiter(Protocol):
    def release(self) -> None: ...


_log = logging.getLogger("danaus.actor")
_NONE: Any = ()  # waiters and callbacks of what is settled
_forbidden_threads: set[int] = set()


def forbid_blocking(thread_id: int, forbidden: bool) -> None:
    """Mark a thread whose event loop settles futures: a blocking ``get`` there would hang."""
    if forbidden:
        _forbidden_threads.add(thread_id)
    else:
        _forbidden_threads.discard(thread_id)


class Future(Generic[T]):
    """A value that is still to come.

    Args:
        what: What it is, for messages.
        on_cancel: Called once if the future is cancelled before it is settled.
        decode: Turns what it is settled with into the value, on the thread that first asks for
            it: users' objects are not unpacked on the connections' thread.
    """

    __slots__ = (
        "_callbacks",
        "_decode",
        "_decoding",
        "_error",
        "_is_settled",
        "_lock",
        "_num_waiting",
        "_on_cancel",
        "_value",
        "_waiters",
        "what",
    )

    def __init__(
        self,
        what: str = "a future",
        *,
        on_cancel: Callable[[], None] | None = None,
        decode: Callable[[Any], T] | None = None,
    ) -> None:
        self.what = what
        self._decode = decode
        self._decoding = threading.Lock()
        self._on_cancel = on_cancel
        self._lock = threading.Lock()
        self._is_settled = False
        self._waiters: list[_Waiter] = []  # each is released once the future is settled
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], None]] = []
        self._num_waiting = 0  # threads in ``get`` and mirrors on event loops

    @classmethod
    def of(cls, value: T) -> Future[T]:
        """Return a future that holds ``value`` already."""
        future: Future[T] = cls()
        future.set_value(value)
        return future

    # -- settling ------------------------------------------------------------------------------

    def set_value(self, value: Any) -> bool:
        """Settle with a value (or what ``decode`` takes); false if it was settled before."""
        return self._settle(value, None)

    def set_error(self, error: BaseException) -> bool:
        """Settle with an exception; false if it was settled before."""
        return self._settle(None, error)

    def cancel(self) -> bool:
        """Give up: tell the other side where that is possible; false if it is too late."""
        if not self._settle(None, asyncio.CancelledError(f"{self.what} was cancelled")):
            return False
        if self._on_cancel is not None:
            self._on_cancel()
        return True

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_settled:
                return False
            self._value, self._error = value, error
            self._is_settled = True
            waiters, callbacks = self._waiters, self._callbacks
            self._waiters = self._callbacks = _NONE
        for waiter in waiters:
            waiter.release()
        for callback in callbacks:
            with Attempt() as attempt:  # else it would end the connection that brought the answer
                callback(self)
            if attempt.error is not None:
                _log.error("%s: a callback of it raised", self.what, exc_info=attempt.error)
        return True

    @property
    def _reading(self) -> SharedReading | None:
        """Who brings what this waits for, where that may be the thread that waits."""
        return None

    def _wait(self, limit_s: float | None) -> None:
        if self.done():
            return
        reading = self._reading
        self._forbid_where_it_would_hang()
        waiter = threading.Lock()  # wakes a thread in half the time of an event
        waiter.acquire()
        with self._lock:
            if self._is_settled:
                return
            told = waiter if reading is None else _Reader(waiter, reading)
            self._waiters.append(told)
            self._num_waiting += 1
        try:
            left_s = self._read_meanwhile(reading, limit_s)
            if not waiter.acquire(timeout=left_s):
                raise DeadlinePassed(waited_for=self.what, limit_s=limit_s or 0.0)
        finally:
            with self._lock:
                self._num_waiting -= 1
                if not self._is_settled:
                    self._waiters.remove(told)

    # -- waiting -------------------------------------------------------------------------------

    def done(self) -> bool:
        """Tell whether it is settled."""
        return self._is_settled

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call ``callback(self)`` once settled, on the thread that settles it (or at once).

        That may be the connections' thread, or one that waits for another answer: it must not
        block.  What it raises there is logged.
        """
        with self._lock:
            if not self._is_settled:
                self._callbacks.append(callback)
                return
        callback(self)

    def get(self, timeout: float | None = None) -> T:
        """Wait, from a plain thread, and return the value.

        Args:
            timeout: Seconds to wait at most; None leaves it to the call's own limits (A-4).

        Raises:
            DeadlinePassed: ``timeout`` passed; the call itself goes on.
            Exception: Whatever the future was settled with.
        """
        self._wait(timeout)
        return self._outcome()

    def _read_meanwhile(self, reading: SharedReading | None, limit_s: float | None) -> float:
        """Read until it is settled, if that can be done; return how long to wait after that."""
        until_s = None if limit_s is None else time.monotonic() + limit_s
        if reading is not None:
            reading.lead(self.done, limit_s=limit_s)
        if not self._is_settled:
            about_to_block()
        return -1 if until_s is None else max(0.0, until_s - time.monotonic())

    def _forbid_where_it_would_hang(self) -> None:
        if is_handling_here() or threading.get_ident() in _forbidden_threads:
            raise RuntimeError(
                f"{self.what}: get() would block the thread that brings the answer; await it "
                "instead, or add a callback"
            )

    def result(self, timeout: float | None = None) -> T:
        """Wait and return the value (the spelling of ``concurrent.futures``)."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait and return the exception, None if there is a value."""
        self._wait(timeout)
        self._open()
        return self._error

    def as_asyncio(self) -> asyncio.Future[T]:
        """Return an asyncio future of the running loop.

        Cancelling it cancels the call, unless somebody else still waits for it.
        """
        mirror = _Mirror(self)
        with self._lock:
            self._num_waiting += 1
        self.add_done_callback(mirror.source_settled)
        return mirror

    def _waits_no_more(self) -> bool:
        """Take note that one no longer waits; tell whether it was the last."""
        with self._lock:
            self._num_waiting -= 1
            return self._num_waiting == 0

    async def wait(self) -> None:
        """Wait until it is settled, whatever with."""
        handover = handover_to(asyncio.get_running_loop())
        settled = asyncio.Event()
        self.add_done_callback(lambda _: handover.post(settled.set))
        await settled.wait()

    def __await__(self) -> Generator[Any, None, T]:
        if not self._is_settled:
            waiting = _Awaiting(self)
            with self._lock:
                self._num_waiting += 1
            self.add_done_callback(waiting.source_settled)
            reading = self._reading
            if reading is not None:
                reading.follow(waiting.get_loop())
            yield waiting
            if not self._is_settled:
                raise RuntimeError(f"{self.what} was awaited by what is no task of asyncio's")
        return self._outcome()

    def _open(self) -> None:
        """Decode, once."""
        if self._decode is not None:
            self._decode_once()

    def _decode_once(self) -> None:
        with self._decoding:
            if self._decode is None or self._error is not None:
                return
            with Attempt() as attempt:
                self._value = self._decode(self._value)
            self._error = attempt.error
            self._decode = None

    def _outcome(self) -> T:
        self._open()
        if self._error is not None:
            raise self._error
        value: Any = self._value
        return value  # type: ignore[no-any-return]


class _Reader:
    """A thread that reads while it waits."""

    def __init__(self, waiter: threading.Lock, reading: SharedReading) -> None:
        self._waiter, self._reading = waiter, reading

    def release(self) -> None:
        """Have it go on."""
        self._waiter.release()
        self._reading.ring()


class _Awaiting:
    """One ``await`` of a future, as the task that waits sees it: in place of asyncio's own future.

    The task goes on in the turn of the loop that hears of the answer, not in the next.
    """

    def __init__(self, source: Future[Any]) -> None:
        self._asyncio_future_blocking = True  # tasks know by this what they can wait for
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._handover = handover_to(self._loop)
        self._going_on: list[tuple[Callable[[_Awaiting], object], contextvars.Context]] = []
        self._is_over = False
        self._cancelled: asyncio.CancelledError | None = None

    def source_settled(self, _: Future[Any]) -> None:
        """Have the task go on, on its loop; from any thread."""
        self._handover.post(self._go_on)

    def _go_on(self) -> None:
        if not self._is_over:
            self._is_over = True
            for function, context in self._going_on:
                context.run(function, self)

    # -- what a task asks of a future ----------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that this belongs to."""
        return self._loop

    def add_done_callback(
        self, function: Callable[[_Awaiting], object], *, context: contextvars.Context
    ) -> None:
        """Call ``function(self)`` when it is over, which it is not yet."""
        self._going_on.append((function, context))

    def cancel(self, msg: Any = None) -> bool:
        """Wait no more; cancel the call, if nobody else waits for it."""
        if self._is_over:
            return False
        self._is_over, self._cancelled = True, asyncio.CancelledError(msg)
        for function, context in self._going_on:
            self._loop.call_soon(function, self, context=context)
        if self._source._waits_no_more():
            self._source.cancel()
        return True

    def result(self) -> None:
        """Raise if the wait was cancelled; the value is the source's."""
        if self._cancelled is not None:
            raise self._cancelled


class _Mirror(asyncio.Future[T]):
    """The same value on one event loop; who cancels it cancels the call, if nobody else waits."""

    def __init__(self, source: Future[T]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop)
        self._source = source
        self._handover = handover_to(loop)

    def source_settled(self, _: Future[T]) -> None:
        """Have the loop take over what the source was settled with; from any thread."""
        self._handover.post(self._copy)

    def _copy(self) -> None:
        if self.done():
            return
        source = self._source
        source._open()
        if isinstance(source._error, asyncio.CancelledError):
            super().cancel()
        elif source._error is not None:
            self.set_exception(source._error)
        else:
            self.set_result(source._value)  # type: ignore[arg-type]  # None is a value too

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        if self._source._waits_no_more():
            self._source.cancel()
        return True
