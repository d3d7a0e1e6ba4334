"""Whether all of a long vector is finite, at the price of reading it once."""

from __future__ import annotations

import math

import torch
from torch import Tensor


@torch.no_grad()
def is_finite(flat: Tensor) -> bool:
    """Tell whether every element is finite.

    An infinity or a NaN makes every sum that it enters one; a sum that is finite so speaks for all
    that was added.  One that is not may only be too large: then each element is looked at.
    """
    return math.isfinite(float(flat.sum())) or bool(torch.isfinite(flat).all())
