"""Adds the partials of one reduction along its plan, piece by piece, into kept buffers.

Owns the choice of where a sum is written: partials of the caller are never changed, so that a
broken reduction can be tried again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.collectives.tree import Add


class Combiner:
    """Additions along a plan; scratch buffers are kept from call to call."""

    def __init__(self) -> None:
        self._scratch: list[Tensor] = []

    def combine(
        self,
        values: list[Tensor],
        writable: Sequence[bool],
        adds: Sequence[Add],
        *,
        out: Tensor,
    ) -> None:
        """Leave the sum of ``values`` in ``out``.

        Args:
            values: One per slot, all ``[num_elements]`` fp32; writable ones are overwritten.
            writable: Which of them may be.
            adds: The plan's additions.
            out: ``[num_elements]``, apart from all values.
        """
        if not adds:
            out.copy_(values[0])
            return
        values, free = list(values), list(writable)
        num_scratch = 0
        for into, of in adds[:-1]:
            left, right = values[into], values[of]
            if free[into]:
                target = left
            elif free[of]:
                target = right
            else:
                target = self._borrow(num_scratch, left.numel())
                num_scratch += 1
            values[into] = torch.add(left, right, out=target)
            free[into] = True
        torch.add(values[adds[-1].into], values[adds[-1].of], out=out)

    def _borrow(self, index: int, num_elements: int) -> Tensor:
        if index == len(self._scratch):
            self._scratch.append(torch.empty(num_elements))
        elif self._scratch[index].numel() < num_elements:
            self._scratch[index] = torch.empty(num_elements)
        return self._scratch[index][:num_elements]
