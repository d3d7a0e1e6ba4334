"""The gradients of parameters as tensors that can be reduced in place.

Owns what a gradient is where there is none, and where the parameter is a part of a sharded one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from danaus.collectives.tensor_bytes import local_shard


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradient of each parameter that is trained: this rank's part, the live tensor.

    A parameter that no loss has reached gets a gradient of zeros first.
    """
    return [gradient_of(each) for each in parameters if each.requires_grad]


def gradient_of(parameter: Tensor) -> Tensor:
    """Return one parameter's gradient, as above."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return local_shard(parameter.grad)
