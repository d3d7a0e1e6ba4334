"""The state of a torch optimiser by name, there before its first step.

Owns ``OptimizerState``.  An optimiser makes most of its tensors in its first step, and what it puts
into them then is its own business.  But a learner must have a place for each tensor before it has
taken a step, and everyone must name the same ones from the start.  So stand-ins of zeros hold the
place until the first step, and become the optimiser's where a peer's state was written to them.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from danaus.core.errors import ConfigError

Names = dict[tuple[int, str], Tensor]


class OptimizerState:
    """All tensors that ``optimizer`` keeps for ``parameters``.

    Args:
        optimizer: Any whose state is tensors, all made in its first step or before.
        parameters: All that it steps, and others.

    Raises:
        ConfigError: It keeps something else, or steps something else.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
        self._optimizer, self._parameters = optimizer, parameters
        _refuse_strangers(optimizer, parameters)
        self._shapes = _after_a_step(optimizer, parameters)
        self._early = {at: tensor.detach().clone() for at, tensor in self._held().items()}
        self._stand_ins = self._make_stand_ins()

    def named(self) -> dict[str, Tensor]:
        """Return every tensor by name: the optimiser's own, or the one that stands in for it."""
        held = {**self._stand_ins, **self._held()}
        return {f"{index}.{name}": held[index, name] for index, name in sorted(held)}

    def stepped(self) -> None:
        """Take note that the optimiser has taken a step.

        Raises:
            ConfigError: It keeps other tensors than it did in a trial.
        """
        if not self._stand_ins:
            return
        held = self._held()
        if {at: _facts(t) for at, t in held.items()} != self._shapes:
            raise ConfigError(
                f"the state of {type(self._optimizer).__name__} is not the one of its first step",
                "tensors that are all made in the first step and keep their shape",
            )
        self._stand_ins = {}

    def loaded(self, step: int) -> None:
        """Take note that ``named()`` now holds what a peer had after ``step``."""
        if step == 0:
            self._forget()
            return
        for (index, name), tensor in self._stand_ins.items():
            self._optimizer.state[self._parameters[index]][name] = tensor
        self._stand_ins = {}

    @torch.no_grad()
    def reset(self) -> None:
        """Go back to the state before the first step."""
        held = self._held()
        for at, value in self._early.items():
            held[at].copy_(value)
        self._forget()

    def _forget(self) -> None:
        """Take from the optimiser what it makes in its first step."""
        for index, name in self._held():
            if (index, name) not in self._early:
                parameter = self._parameters[index]
                del self._optimizer.state[parameter][name]
                if not self._optimizer.state[parameter]:
                    del self._optimizer.state[parameter]
        self._stand_ins = self._make_stand_ins()

    def _held(self) -> Names:
        return _tensors(self._optimizer, self._parameters)

    def _make_stand_ins(self) -> Names:
        return {
            at: torch.zeros(shape, dtype=dtype, device=device)
            for at, (shape, dtype, device) in self._shapes.items()
            if at not in self._early
        }


Facts = tuple[torch.Size, torch.dtype, torch.device]


def _facts(tensor: Tensor) -> Facts:
    return tensor.shape, tensor.dtype, tensor.device


def _tensors(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> Names:
    return {
        (index, name): value
        for index, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def _refuse_strangers(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
    known = {id(parameter) for parameter in parameters}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise ConfigError(
                    f"the optimiser steps a tensor of shape {tuple(parameter.shape)} that is no "
                    "trained parameter of the model",
                    "one model with all that is trained",
                )


def _after_a_step(
    optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]
) -> dict[tuple[int, str], Facts]:
    """Return what the optimiser keeps after a step, tried on a copy."""
    trial, copies = copy.deepcopy((optimizer, parameters))
    for parameter in copies:
        parameter.grad = torch.zeros_like(parameter)
    name = type(optimizer).__name__
    try:
        trial.step()
    except TypeError as error:
        raise ConfigError(f"{name}.step(): {error}", "an optimiser that steps by itself") from error
    others = [
        key
        for state in trial.state.values()
        for key, value in state.items()
        if not isinstance(value, Tensor | None)
    ]
    if others:
        raise ConfigError(
            f"{name} keeps {others[0]!r} in something else than a tensor",
            "tensors: a replica that joins receives nothing else",
        )
    return {at: _facts(tensor) for at, tensor in _tensors(trial, copies).items()}
