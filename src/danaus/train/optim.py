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
    """Decoupled weight decay Adam over named local tensors.

    Args:
        parameters: Local tensors by name, fp32; updated in place.
        config: Rates and decays.

    Source: Loshchilov and Hutter 2019; the arithmetic is torch's, its step counter is set from
    the step applied, so that mean and mean square are the only state.
    """

    def __init__(self, parameters: Mapping[str, Tensor], config: OptimConfig) -> None:
        self._parameters = dict(parameters)
        self._config = config
        local = self._parameters.values()
        groups = [
            {
                "params": [tensor for tensor in local if tensor.dim() >= 2],
                "weight_decay": config.weight_decay,
            },
            {"params": [tensor for tensor in local if tensor.dim() < 2], "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=True,
        )
        self.exp_avg: dict[str, Tensor] = {}
        self.exp_avg_sq: dict[str, Tensor] = {}
        self._counts: list[Tensor] = []
        for name, tensor in self._parameters.items():
            self._give_state(name, tensor)

    def _give_state(self, name: str, tensor: Tensor) -> None:
        count = torch.zeros((), dtype=torch.float32, device=tensor.device)
        self.exp_avg[name] = torch.zeros_like(tensor)
        self.exp_avg_sq[name] = torch.zeros_like(tensor)
        self._counts.append(count)
        self._adamw.state[tensor] = {
            "step": count,
            "exp_avg": self.exp_avg[name],
            "exp_avg_sq": self.exp_avg_sq[name],
        }

    def apply(self, gradients: Mapping[str, Tensor], *, step: int, lr: float) -> None:
        """Update every parameter in place.

        Args:
            gradients: By name, of each local tensor's shape.
            step: The step being applied, from 1.
            lr: Its learning rate.
        """
        for count in self._counts:
            count.fill_(step - 1)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        for name, tensor in self._parameters.items():
            tensor.grad = gradients[name]
        self._adamw.step()
        for tensor in self._parameters.values():
            tensor.grad = None
