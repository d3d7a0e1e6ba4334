"""AdamW in place, and the learning rate as a pure function of the step.

Owns ``learning_rate``, ``gradient_norm_square`` and ``AdamW``.  The optimiser
works on local tensors (a shard's, or the whole parameter's), never on distributed ones, so that
applying a committed step needs no peer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from danaus.train.config import OptimConfig


def learning_rate(step: int, num_steps: int, config: OptimConfig) -> float:
    """Return the rate of step ``step`` (from 1): a linear rise, then half a cosine.

    Args:
        step: The step being applied.
        num_steps: Steps of the whole run.
        config: Highest and lowest rate, length of the rise.
    """
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    falling = max(1, num_steps - config.warmup_steps)
    done = min(1.0, (step - config.warmup_steps) / falling)
    low = config.lr * config.min_lr_ratio
    return low + (config.lr - low) * 0.5 * (1.0 + math.cos(math.pi * done))


def gradient_norm_square(parts: Sequence[Tensor]) -> float:
    """Return the sum of squares of ``parts``, in fp64, added up in their order."""
    total = 0.0
    for part in parts:
        if part.numel():
            total += float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2
    return total


class AdamW:
    """Adam with decoupled weight decay over named local tensors.

    Args:
        parameters: Local tensors by name, fp32; updated in place.
        config: Rates and decays.

    Invariants:
        T-2: mean and mean square are its only state; step count and rate are given.

    Source: Loshchilov and Hutter 2019, in the order of torch's single-tensor arithmetic.  Our
    own because building torch's imports its compiler, which takes seconds in a new process.
    """

    def __init__(self, parameters: Mapping[str, Tensor], config: OptimConfig) -> None:
        self._parameters = dict(parameters)
        self._config = config
        self.exp_avg = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self.exp_avg_sq = {name: torch.zeros_like(value) for name, value in parameters.items()}

    def move(self, parameters: Mapping[str, Tensor]) -> None:
        """Update these from here on: the same parameters, in other memory."""
        self._parameters = dict(parameters)

    def apply(self, gradients: Mapping[str, Tensor], *, step: int, lr: float) -> None:
        """Update every parameter in place.

        Args:
            gradients: By name, of each local tensor's shape.
            step: The step being applied, from 1.
            lr: Its learning rate.
        """
        config = self._config
        step_size = lr / (1.0 - config.beta1**step)
        root_correction = math.sqrt(1.0 - config.beta2**step)
        with torch.no_grad():
            for name, value in self._parameters.items():
                gradient = gradients[name]
                if config.weight_decay and value.dim() >= 2:
                    value.mul_(1.0 - lr * config.weight_decay)
                mean = self.exp_avg[name].lerp_(gradient, 1.0 - config.beta1)
                square = self.exp_avg_sq[name].mul_(config.beta2)
                square.addcmul_(gradient, gradient, value=1.0 - config.beta2)
                root = square.sqrt().div_(root_correction).add_(config.eps)
                value.addcdiv_(mean, root, value=-step_size)
