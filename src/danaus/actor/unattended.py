"""A detached host agent whose controller is gone: it goes on for as long as somebody works (P-4).

That is until every worker of its host has ended or has said that it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from danaus.wire.position import Phase, PositionBlock

_LOOK_S = 1.0
_LOOKS = 5  # in a row; one that is done still writes down what it came to


class Workplace(Protocol):
    """A worker, as it is looked at from here."""

    @property
    def block(self) -> PositionBlock:
        """Where it says how far it is."""
        ...


async def nobody_works(workers: Iterable[Workplace]) -> None:
    """Return once no worker has had anything left to do for some time.

    Args:
        workers: Those of the host, looked at anew each time.
    """
    idle = 0
    while idle < _LOOKS:
        await asyncio.sleep(_LOOK_S)
        done = all(worker.block.read().phase is Phase.DONE for worker in workers)
        idle = idle + 1 if done else 0
