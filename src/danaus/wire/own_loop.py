"""The loop that something belongs to, as seen from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


class OwnLoop:
    """The loop on which this is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def is_current(self) -> bool:
        """Tell whether the caller is on it."""
        return threading.get_ident() == self._thread

    def soon(self, function: Callable[..., object], *args: object) -> None:
        """Have the loop call a function, not before the caller is done with what it does there."""
        if self.is_current:
            self.loop.call_soon(function, *args)
            return
        with contextlib.suppress(RuntimeError):  # it has ended, and what belongs to it
            self.loop.call_soon_threadsafe(function, *args)

    def now_or_soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a function: at once on the loop, from another thread soon."""
        if self.is_current:
            function(*args)
        else:
            self.soon(function, *args)
