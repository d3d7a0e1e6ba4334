"""The actors that ``danaus bench actor`` calls: one with plain endpoints, one on the loop."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from danaus.actor import Actor, endpoint

_ASLEEP_S = 120.0


class Plain(Actor):
    """Its endpoints run on its own thread."""

    def __init__(self) -> None:
        self._num = 0

    @endpoint
    def ping(self, value: bytes) -> bytes:
        """Return ``value``."""
        return value

    @endpoint
    def sink(self, value: object) -> None:
        """Count a message."""
        self._num += 1

    @endpoint
    def count(self) -> int:
        """Return how many came since the last time."""
        num, self._num = self._num, 0
        return num

    @endpoint
    def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    @endpoint
    def stay(self) -> None:
        """Answer to nobody for a long time."""
        threading.Event().wait(_ASLEEP_S)


class OnLoop(Actor):
    """Its endpoints run on the loop of its process."""

    @endpoint
    async def ping(self, value: bytes) -> bytes:
        """Return ``value``."""
        return value

    @endpoint
    async def spans_to(self, other: Any, num: int) -> list[float]:
        """Call another actor so many times; return the seconds of each call."""
        return await spans_awaited(other, num)


async def spans_awaited(target: Any, num: int) -> list[float]:
    """Call ``target.ping`` so many times, one after the other; return the seconds of each."""
    spans: list[float] = []
    for _ in range(num):
        began = time.perf_counter()
        await target.ping.call_one(b"x")
        spans.append(time.perf_counter() - began)
    return spans
