"""First values of a network's parameters: a function of the seed and of each one's name (T-6).

Because no draw depends on another, neither order, sharding nor who asks changes a bit.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor


def draw_seed(*facts: object) -> int:
    """Return a 63-bit seed that is a function of ``facts``, on every machine the same."""
    text = "\x1f".join(str(fact) for fact in facts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def initial_value(name: str, shape: torch.Size, *, seed: int, num_layers: int) -> Tensor:
    """Return the first value of one parameter.

    Vectors (norm scales) are ones.  Matrices are normal: the embedding with deviation 0.02,
    others with ``1 / sqrt(fan_in)``, and those that write to the residual stream divided by
    ``sqrt(2 * num_layers)`` as well.

    Args:
        name: The parameter's full name in its module.
        shape: Its full shape.
        seed: The run's seed.
        num_layers: Blocks in the network.

    Returns:
        ``shape``, fp32, CPU.
    """
    if len(shape) < 2:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    std = 0.02 if "embedding" in name else 1.0 / math.sqrt(shape[1:].numel())
    if name.endswith(("wo.weight", "w2.weight")):
        std /= math.sqrt(2 * num_layers)
    generator = torch.Generator().manual_seed(draw_seed("initial", seed, name))
    return torch.empty(shape).normal_(0.0, std, generator=generator)
