"""Local SGD over the commit of the whole quorum.

Owns the mean of whole weights.

Source: Local SGD (arXiv 1805.09767).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from danaus.collectives.tensor_bytes import local_shard
from danaus.core.errors import ConfigError
from danaus.ft.averaging import OuterManager, Wiring, wide
from danaus.ft.fragments import Schedule
from danaus.ft.outer_steps import OuterSteps


@dataclass(eq=False)
class LocalSGD:
    """Train apart; every ``sync_every`` steps of the optimiser, replace the weights by their mean.

    Where the mean cannot commit, weights and optimiser stay as they are, and those that are left
    try again at once; no step is lost.  A replica that joins learns weights, optimiser and its
    place when the ``with`` statement is entered.  Of the manager's state only what was agreed on is
    compared from here on: what the manager was given itself may differ between replicas.

    Args:
        manager: Its steps are the means.
        model: Its parameters that are trained are averaged; buffers are each replica's own.
        optimizer: Steps in your loop.
        sync_every: Steps from mean to mean.

    Raises:
        ConfigError: Nothing to train, or ``sync_every`` is less than 1.

    Example::

        with LocalSGD(manager, model, optimizer, sync_every=8):
            for batch in batches:
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
    """

    manager: OuterManager
    model: nn.Module
    optimizer: Optimizer
    sync_every: int
    _steps: OuterSteps = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._steps = OuterSteps(
            self.manager,
            [WholeWeights(self.model)],
            self.optimizer,
            schedule=Schedule(self.sync_every),
            wiring=Wiring(),
        )

    def __enter__(self) -> Self:
        self._steps.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._steps.leave()


class WholeWeights:
    """A model whose weights are averaged as they are.

    Args:
        module: The model.

    Raises:
        ConfigError: Nothing to train.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._parameters = [each for each in module.parameters() if each.requires_grad]
        if not self._parameters:
            raise ConfigError("a model without a parameter to train", "one that is trained")
        # The weights on which all agreed last: what a replica that differs is found by.
        self._agreed = [local_shard(each).clone() for each in self._parameters]
        self.brought = [each.to(wide(each.dtype)) for each in self._agreed]

    def prepare(self) -> None:
        """Take down the weights."""
        here = [local_shard(each) for each in self._parameters]
        self.brought = [each.to(wide(each.dtype), copy=True) for each in here]

    @torch.no_grad()
    def apply(self, mean: Sequence[Tensor]) -> None:
        """Go on from the mean."""
        for parameter, agreed, each in zip(self._parameters, self._agreed, mean, strict=True):
            agreed.copy_(each)
            local_shard(parameter).copy_(agreed)

    def shared(self) -> dict[str, Any]:
        """Return the weights on which all agreed last."""
        return {"weights": self._agreed}

    @torch.no_grad()
    def load_shared(self, state: dict[str, Any]) -> None:
        """Take over another replica's."""
        for agreed, given in zip(self._agreed, state["weights"], strict=True):
            agreed.copy_(given)
