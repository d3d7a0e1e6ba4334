"""Tasks with an owner that outlives no scope: they end when their owner is closed.

For objects that start work from callbacks, where ``asyncio.TaskGroup`` has no place to stand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_END_LIMIT_S = 5.0
_log = logging.getLogger("danaus.wire")


class OwnedTasks:
    """The tasks of one object; a failed one is logged, all are cancelled by ``close``."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start ``work`` on the running loop."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Ask every task to end, without waiting."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel every task and wait until they have ended."""
        mine = asyncio.current_task()
        others = [task for task in self._tasks if task is not mine]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_END_LIMIT_S)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed: %s", task.get_name(), error, exc_info=error)
