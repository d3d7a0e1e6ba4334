"""Which of several errors is told, and waiting for several ranks: ``worst``, ``all_of``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from danaus.actor.future import Future
from danaus.core.errors import (
    ActorError,
    DanausError,
    DependencyMissing,
    Diverged,
    StepImpossible,
)

T = TypeVar("T")
_SIBLINGS_LIMIT_S = 0.25


async def all_of(futures: Sequence[Future[T] | asyncio.Future[T]]) -> tuple[T, ...]:
    """Return what every future comes to, or raise the worst error once one has raised."""
    calls = [each.as_asyncio() if isinstance(each, Future) else each for each in futures]
    try:
        return await gathered(calls)
    finally:
        for call in calls:
            call.cancel()


async def gathered(calls: Sequence[asyncio.Future[T]]) -> tuple[T, ...]:
    """Return what every call comes to, or raise the worst error once one has raised.

    Those that have not ended go on.
    """
    _, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
    if waiting:  # siblings that fail at the same time may have the better word
        await asyncio.wait(waiting, timeout=_SIBLINGS_LIMIT_S)
    ended = [call for call in calls if call.done() and not call.cancelled()]
    errors = [e for call in ended if isinstance(e := call.exception(), Exception)]
    if errors:
        raise worst(ExceptionGroup("ranks", errors))
    return tuple(call.result() for call in calls)


HOPELESS = (DependencyMissing, Diverged, StepImpossible)
"""What another start does not mend: every replica is told the same."""


def worst(raised: Exception) -> Exception:
    """Return the one error that ends the job if there is such, else one raised on purpose, else
    any: the machine's, or a mistake of ours.
    """
    return max(
        (error for error in _leaves(raised) if isinstance(error, Exception)),
        key=lambda error: (isinstance(error, HOPELESS), isinstance(error, DanausError)),
        default=raised,
    )


def in_words(error: DanausError) -> str:
    """Return an error in one line: the process's log has the rest."""
    words = error.raised if isinstance(error, ActorError) else str(error)
    return words.partition("\n")[0]


def _leaves(error: BaseException) -> list[BaseException]:
    """Return what an endpoint raised at each point, the original where it could be pickled."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    original = error.__cause__ if isinstance(error, ActorError) else None
    return [original if isinstance(original, DanausError) else error]
