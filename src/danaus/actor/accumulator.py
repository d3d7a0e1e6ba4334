"""One value out of a whole mesh's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from danaus.actor.faces import Endpoint
from danaus.actor.future import Future
from danaus.actor.value_mesh import ValueMesh

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class Accumulator(Generic[P, R, A]):
    """Calls an endpoint on a whole mesh and combines the values into one.

    Values are combined in the order of ranks, whatever order they arrive in: sums of floating
    point numbers come out with the same bits each time.

    Args:
        endpoint: What is called.
        identity: What the first value is combined with.
        combine: Returns what was accumulated so far with one more value.
    """

    def __init__(self, endpoint: Endpoint[P, R], identity: A, combine: Callable[[A, R], A]) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._combine = combine

    def accumulate(self, *args: P.args, **kwargs: P.kwargs) -> Future[A]:
        """Call every actor; the future raises an ``ExceptionGroup`` as that of ``call`` does."""
        answers = self._endpoint.call(*args, **kwargs)

        def decode(values: Future[ValueMesh[R]]) -> A:
            return functools.reduce(self._combine, values.result().values(), self._identity)

        def cancel() -> None:
            answers.cancel()

        total: Future[A] = Future("an accumulated value", on_cancel=cancel, decode=decode)
        answers.add_done_callback(lambda done: _settle(total, done))
        return total


def _settle(total: Future[A], answers: Future[ValueMesh[R]]) -> None:
    total.set_value(answers)
