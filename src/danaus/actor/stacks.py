"""What every thread of a worker is at: asked for by a signal, read from the worker's log.

Owns the asking and the reading, for whoever saves stacks before a kill (P-3) or wants to see them.
A worker writes from its signal handler, so that one that holds the interpreter's lock or waits in
a library answers as well; one that is stopped does not.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from danaus.actor import procfs
from danaus.actor.agent_messages import ProcessStacks
from danaus.actor.nursery_messages import WorkerSpec
from danaus.wire.position import PositionBlock

_FENCE_LIMIT_S = 0.1  # the others wait for the one that is to be killed
_LIMIT_S = 2.0
_LOOK_S = 0.005


class Writer(Protocol):
    """A worker, as it is looked at from here."""

    @property
    def spec(self) -> WorkerSpec:
        """How it was started."""
        ...

    @property
    def pid(self) -> int:
        """Its process; 0: it is not started yet."""
        ...

    @property
    def block(self) -> PositionBlock:
        """Where it says how far it is."""
        ...

    @property
    def ended(self) -> asyncio.Event:
        """Set once it has ended."""
        ...


async def write_stacks(
    worker: Writer, ask: Callable[[], None], limit_s: float = _FENCE_LIMIT_S
) -> str:
    """Have a worker's stacks written to its log; return why it writes none, empty if it does.

    Returns once the log has grown and come to rest, or it takes too long.

    Args:
        worker: Whose.
        ask: Sends the signal that asks for them.
        limit_s: How long it may take.
    """
    stat = procfs.read_stat(worker.pid) if worker.pid else None
    if stat is None:
        return "the process is not there"
    if stat.is_stopped:
        return "the process is stopped"
    before = last = _size(worker.spec.log_path)
    ask()
    until = time.monotonic() + limit_s
    while time.monotonic() < until and not worker.ended.is_set():
        await asyncio.sleep(_LOOK_S)
        size = _size(worker.spec.log_path)
        if size == last != before:
            return ""
        last = size
    return "" if last != before else f"nothing came within {limit_s:g} s"


async def take_stacks(worker: Writer, ask: Callable[[], None]) -> ProcessStacks:
    """Return what a worker is at; it goes on.

    Args:
        worker: Whose.
        ask: Sends the signal that asks for it.
    """
    at = worker.block.read()
    seen = ProcessStacks(worker.spec.process_id, worker.pid, at.step, int(at.phase))
    before = _size(worker.spec.log_path)
    why = await write_stacks(worker, ask, _LIMIT_S)
    text = "" if why else _read_from(worker.spec.log_path, before)
    return msgspec.structs.replace(seen, text=text, why=why)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _read_from(path: str, start: int) -> str:
    try:
        with Path(path).open("rb") as file:
            file.seek(start, os.SEEK_SET)
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
