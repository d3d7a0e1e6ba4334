"""An optimiser that steps where the step commits.

Owns ``Optimizer``, which ties the two calls of a loop to the two ends of a ``Manager``'s step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from danaus.core.errors import ConfigError
from danaus.ft.managing import Manager


class Optimizer(torch.optim.Optimizer):
    """Begin a step with ``zero_grad``, and end it with ``step``, as the manager says.

    Args:
        manager: Asked for the quorum and for the outcome.
        optim: Steps where the outcome is true; it is as it was where not (T-2).
    """

    def __init__(self, manager: Manager, optim: torch.optim.Optimizer) -> None:
        # Not initialised as an optimiser of its own: all that it holds is the wrapped one's.
        self.manager, self.optim = manager, optim

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Begin the next step; forget the gradients."""
        self.manager.start_quorum()
        self.optim.zero_grad(set_to_none)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Step where the step commits.

        Raises:
            ConfigError: There is a closure: it would compute the gradient again after the vote.
        """
        if closure is not None:
            raise ConfigError("an optimiser's closure", "gradients that were reduced before")
        if self.manager.should_commit():
            self.optim.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimiser's."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimiser's."""
        self.optim.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the wrapped optimiser."""
        self.optim.add_param_group(param_group)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The wrapped optimiser's."""
        return self.optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The wrapped optimiser's."""
        return self.optim.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The wrapped optimiser's."""
        return self.optim.defaults

    def __repr__(self) -> str:
        return f"Optimizer({self.optim!r})"
