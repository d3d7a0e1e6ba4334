"""The numbers that a torch optimiser's step goes by: learning rates, decays and the like.

Owns ``OptimizerNumbers``.  A loop changes them from step to step; whoever takes a step that others
took, or goes on where they stand, must go by theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from danaus.core.errors import InternalError


class OptimizerNumbers:
    """All numbers in ``optimizer``'s parameter groups, in a fixed order.

    Of a group those count that the optimiser itself has named; what a schedule keeps there for
    itself does not.

    Args:
        optimizer: Whose groups stay the same ones.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def get(self) -> tuple[float, ...]:
        """Return them as they are now."""
        return tuple(float(each) for _, _, value in self._named() for each in _numbers_in(value))

    @torch.no_grad()
    def set(self, numbers: Sequence[float]) -> None:
        """Make them what ``get`` returned, here or in another process of the same program."""
        if len(numbers) != len(self.get()):
            raise InternalError("H-1", f"{len(numbers)} numbers for {len(self.get())} of a step")
        left = iter(numbers)
        for group, key, value in self._named():
            group[key] = _with_numbers(value, left)

    def _named(self) -> Iterator[tuple[dict[str, Any], str, Any]]:
        for group in self._optimizer.param_groups:
            for key in sorted(self._optimizer.defaults):
                if key in group:
                    yield group, key, group[key]


def _numbers_in(value: Any) -> Sequence[Any]:
    if isinstance(value, tuple | list):
        return [number for each in value for number in _numbers_in(each)]
    if isinstance(value, Tensor):
        return value.reshape(-1).tolist()
    return [value] if isinstance(value, float | int) else []


def _with_numbers(value: Any, left: Iterator[float]) -> Any:
    """Return ``value`` with the next numbers in the places of its own."""
    if isinstance(value, tuple | list):
        return type(value)(_with_numbers(each, left) for each in value)
    if isinstance(value, Tensor):
        numbers = [next(left) for _ in range(value.numel())]
        return value.copy_(torch.tensor(numbers, dtype=torch.float64).view(value.shape))
    return type(value)(next(left)) if isinstance(value, float | int) else value
