"""One flat vector for a gradient: where each parameter lies in it.

Owns the layout that every member of a reduction agrees on: parameters one after the other, then
the tail ``[sum of token losses, number of tokens]``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

TAIL = 2
_MOST_CUT = 4
"""Vectors whose views are remembered: the same few come again in each step."""


class FlatLayout:
    """Where named tensors lie in one vector.

    Args:
        named: The tensors, in order; only names and shapes are kept.
    """

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self._places: dict[str, tuple[int, torch.Size]] = {}
        offset = 0
        for name, tensor in named.items():
            self._places[name] = (offset, tensor.shape)
            offset += tensor.numel()
        self.num_elements = offset + TAIL
        self._cut: dict[int, tuple[Tensor, dict[str, Tensor]]] = {}

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return each tensor's place in ``flat`` (``[num_elements]``) in the tensor's shape."""
        known = self._cut.get(id(flat))
        if known is not None and known[0] is flat:
            return known[1]
        if len(self._cut) >= _MOST_CUT:
            self._cut.clear()
        views = {
            name: flat[offset : offset + shape.numel()].view(shape)
            for name, (offset, shape) in self._places.items()
        }
        self._cut[id(flat)] = flat, views
        return views

    def first_not_finite(self, flat: Tensor) -> str:
        """Return the name of the first tensor in ``flat`` that holds an infinity or a NaN."""
        for name, view in self.views(flat).items():
            if not bool(torch.isfinite(view).all()):
                return name
        return "the loss"
