"""One message on its way through an actor, and what its code may end in."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from danaus.actor.attempt import exits
from danaus.actor.endpoints import EndpointSpec
from danaus.actor.failure import Fault
from danaus.actor.links import Peer
from danaus.actor.loop_thread import LoopThread
from danaus.actor.process_messages import Deliver
from danaus.core.clock import Clock
from danaus.wire.frame import Buffer


class CodeHost(Protocol):
    """The process, as what runs users' code sees it."""

    io: LoopThread
    wall_clock: Clock

    @property
    def user_loop(self) -> LoopThread:
        """The loop for users' ``async`` code."""

    def process_should_end(self, code: int) -> None:
        """Users' code called ``sys.exit``."""


@dataclass(eq=False, slots=True)
class Work:
    """One message on its way through the actor."""

    message: Deliver
    parts: Sequence[Buffer]
    peer: Peer
    spec: EndpointSpec | None = None
    is_cancelled: bool = False
    task: asyncio.Task[Any] | None = None

    @property
    def is_plain(self) -> bool:
        """Tell whether it runs on the actor's own thread."""
        spec = self.spec
        return spec is None or not (spec.is_async or spec.concurrent)


def guarded(job: Callable[[], object], end: Callable[[int], None]) -> Callable[[], None]:
    """Return ``job`` as run on a thread of ours: ``sys.exit`` there calls ``end``."""

    def run() -> None:
        with exits(end):
            job()

    return run


def fault_of(error: Exception, at_s: float) -> Fault:
    """Return what an exception in users' code means, with its traceback from their frame on."""
    frames = error.__traceback__
    if frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return Fault(
        kind="exception",
        reason=f"{type(error).__name__}: {error}",
        exception=error,
        traceback=text,
        time_s=at_s,
    )
