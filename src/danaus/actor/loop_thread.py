"""A thread that runs an event loop, and how other threads hand it work in order.

Each process has one for connections, which never runs users' code, and one for users' ``async``
code, so that neither heartbeats nor other actors wait for what a user's endpoint does (A-2).  The
second reads for the first for as long as it is quick about it: see ``wire.reading``.
"""

from __future__ import annotations

import asyncio
import collections
import importlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from danaus.actor.future import forbid_blocking
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.reading import soon_here

_START_LIMIT_S = 10.0
_STOP_LIMIT_S = 5.0


class LoopThread:
    """Runs from its making until ``stop``.

    Args:
        name: The thread's name.
        on_crash: Told of an exception that a function or task of ours raised.
    """

    def __init__(self, name: str, on_crash: Callable[[dict[str, Any]], None]) -> None:
        self.loop = _new_loop()
        self.loop.set_exception_handler(lambda _, facts: on_crash(facts))
        self._posted: collections.deque[tuple[Callable[..., object], tuple[Any, ...]]]
        self._posted = collections.deque()
        self._lock = threading.Lock()
        self._is_woken = False
        self._running = threading.Event()
        self._stopped = False
        self.tasks = OwnedTasks(name)
        # A daemon: an interpreter that ends does not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        if not self._running.wait(_START_LIMIT_S):
            raise RuntimeError(f"thread {name} did not start")

    @property
    def is_current(self) -> bool:
        """Tell whether the caller runs on this thread."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_stopped(self) -> bool:
        """Tell whether ``stop`` was called."""
        return self._stopped

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run ``function(*args)`` on the loop, after everything posted before."""
        with self._lock:
            self._posted.append((function, args))
            if self._is_woken or self._stopped:
                return
            self._is_woken = True
        if threading.get_ident() == self._thread.ident:
            soon_here(self.loop, self._run_posted)
            return
        try:
            self.loop.call_soon_threadsafe(self._run_posted)
        except RuntimeError:
            pass  # stopped in this moment: nobody waits for it any more

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run a coroutine on the loop; it is cancelled when the thread stops."""
        self.post(lambda: self.tasks.start(work, name))

    def run(self, work: Coroutine[Any, Any, Any], limit_s: float | None) -> Any:
        """Run a coroutine on the loop and wait for it, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(limit_s)

    def stop(self) -> None:
        """Cancel what runs there and end the thread."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        ident = threading.get_ident()
        forbid_blocking(ident, True)
        self.loop.call_soon(self._running.set)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.tasks.close())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            forbid_blocking(ident, False)
            self.loop.close()

    def _run_posted(self) -> None:
        with self._lock:
            batch, self._posted = self._posted, collections.deque()
            self._is_woken = False
        try:
            while batch:
                function, args = batch.popleft()
                function(*args)
        finally:
            if batch:  # one of them raised, which the loop's handler is told: go on with the rest
                with self._lock:
                    batch.extend(self._posted)
                    self._posted = batch
                    self._is_woken = True
                self.loop.call_soon(self._run_posted)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
