"""Fault tolerance for a loop of your own: a plain model, a plain optimiser, ten more lines.

Owns ``Manager`` and the ``Work`` that it makes of a model and an optimiser.  The constant global
batch (T-3) is the default: a step is always the same microbatches, whoever is alive, so
that the result does not depend on who died.

Example::

    manager = Manager(model, optimizer, place, plan=StepPlan(1000, num_leaves=8))
    for step in manager.steps():
        for m in step.microbatches():
            loss_sum, num_tokens = loss_of(model, batch(step.number, m))
            step.backward(loss_sum, num_tokens)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from danaus.collectives.fingerprint import fingerprint
from danaus.core.errors import CheckpointDamaged, ConfigError, InternalError
from danaus.ft.attempt import Attempt
from danaus.ft.ledger import Ledger
from danaus.ft.observer import Observer
from danaus.ft.participant import Participant, StepPlan
from danaus.ft.place import Place

_TAIL = 2


class Step:
    """One try of one step, as the loop's body sees it.

    Args:
        attempt: The share of this replica.
        work: Takes the gradients in.
    """

    def __init__(self, attempt: Attempt, work: PlainWork) -> None:
        self._attempt, self._work = attempt, work

    @property
    def number(self) -> int:
        """The step, from 1; a discarded one comes again under the same number."""
        return self._attempt.step

    def microbatches(self) -> Iterator[int]:
        """Hand out this replica's microbatches; call ``backward`` once for each.

        Every random draw and every sample must be a function of the step's number and the
        microbatch alone.
        """
        for leaf in self._attempt.leaves():
            self._work.begin_leaf()
            yield from leaf.microbatches
            self._attempt.add(leaf, self._work.leaf(len(leaf.microbatches)))

    def backward(self, loss_sum: Tensor, num_tokens: int) -> None:
        """Add one microbatch.

        Args:
            loss_sum: Sum (not mean) of the losses of its tokens, a scalar.
            num_tokens: How many there are; gradients are divided by those of the whole step (T-5).
        """
        self._work.backward(loss_sum, num_tokens)

    def refuse(self, reason: str) -> None:
        """Make nobody commit this try."""
        self._attempt.refuse(reason)


class Manager:
    """Train ``model`` with ``optimizer`` as one replica of a run that goes through failures.

    Args:
        model: On every replica the same function of the seed.  A forward must mutate no buffer.
        optimizer: Over its parameters.  Its rate must be a function of the step's number.
        place: Who this process is; one rank per replica.
        plan: Steps of the run, and microbatches of a step, whoever computes them.
        ledger: Where each applied step is written (T-7).
        observer: Told of phases and committed steps.

    Raises:
        ConfigError: Several ranks, or a parameter that is not float32.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        place: Place,
        *,
        plan: StepPlan,
        ledger: Ledger | None = None,
        observer: Observer | None = None,
    ) -> None:
        if place.num_ranks != 1:
            raise ConfigError(
                f"a replica of {place.num_ranks} ranks",
                "Manager drives replicas of one process",
                "use Participant with a Work of your own",
            )
        self._work = PlainWork(model, optimizer)
        self._participant = Participant(place, self._work, plan, ledger=ledger, observer=observer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the run."""
        self._participant.close()

    def steps(self) -> Iterator[Step]:
        """Hand out tries of steps until the run is done; leaves the run then."""
        try:
            for attempt in self._participant.attempts():
                yield Step(attempt, self._work)
        finally:
            self.close()

    def current_step(self) -> int:
        """Return how many steps are committed."""
        return self._participant.committed_step

    def num_participants(self) -> int:
        """Return how many replicas share the present step."""
        return len(self._participant.replica_ids)

    def last_loss(self) -> float:
        """Return the mean loss per token of the step last committed; NaN before the first."""
        return self._work.last_loss


@dataclass(frozen=True, slots=True)
class PlainResult:
    """What a committed step was."""

    loss: float
    grad_norm: float
    num_tokens: int


class PlainWork:
    """A plain model and optimiser as a ``Work``: whole on every replica, no checkpoints.

    A copy of the initial state is kept, for a run that lost every replica.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        odd = next((p.dtype for p in self._parameters if p.dtype != torch.float32), None)
        if odd is not None:
            raise ConfigError(f"a parameter of {odd}", "torch.float32 (its sums are exact in it)")
        self._flat = torch.zeros(sum(p.numel() for p in self._parameters) + _TAIL)
        self._views = self._cut(self._flat)
        self._num_added = 0
        self.last_loss = float("nan")
        self._count = torch.zeros(1, dtype=torch.int64)
        _make_optimizer_state(optimizer, self._parameters)
        self._state = self._name_state()
        self._initial = {name: tensor.clone() for name, tensor in self._state.items()}

    # -- gradients --------------------------------------------------------------------------

    def begin_leaf(self) -> None:
        """Begin to accumulate a leaf."""
        self._flat.zero_()
        self._num_added = 0
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def backward(self, loss_sum: Tensor, num_tokens: int) -> None:
        """Accumulate one microbatch."""
        loss_sum.backward()  # type: ignore[no-untyped-call]
        self._flat[-2] += loss_sum.detach()
        self._flat[-1] += num_tokens
        self._num_added += 1

    def leaf(self, num_microbatches: int) -> Tensor:
        """Return the leaf's gradient, ``[P]`` float32, valid until the next ``begin_leaf``."""
        if self._num_added != num_microbatches:
            raise InternalError(
                "T-3", f"backward was called {self._num_added} times for {num_microbatches}"
            )
        for parameter in self._parameters:
            parameter.grad = None
        return self._flat

    def _cut(self, flat_P: Tensor) -> list[Tensor]:
        sizes = [p.numel() for p in self._parameters]
        pieces = torch.split(flat_P[:-_TAIL], sizes)
        return [
            piece.view_as(parameter)
            for piece, parameter in zip(pieces, self._parameters, strict=True)
        ]

    # -- ft.work.Work -----------------------------------------------------------------------

    @property
    def num_gradient_elements(self) -> int:
        return self._flat.numel()

    def check(self, step: int, flat_P: Tensor) -> str | None:
        if not bool(torch.isfinite(flat_P).all()):
            return "the gradient is not finite"
        return None if float(flat_P[-1]) > 0 else "the step has no tokens"

    def apply(self, step: int, flat_P: Tensor) -> PlainResult:
        loss_sum, num_tokens = float(flat_P[-2]), float(flat_P[-1])
        flat_P[:-_TAIL].div_(num_tokens)
        for parameter, gradient in zip(self._parameters, self._cut(flat_P), strict=True):
            parameter.grad = gradient
        norm = float(torch.linalg.vector_norm(flat_P[:-_TAIL]))
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._count.fill_(step)
        self.last_loss = loss_sum / num_tokens
        return PlainResult(self.last_loss, norm, int(num_tokens))

    def state(self) -> dict[str, Tensor]:
        return dict(self._state)

    def loaded(self, step: int) -> None:
        """Nothing to do: the tensors that were written are the model's and the optimiser's."""

    def restorable_step(self) -> int:
        return 0

    def restore(self, step: int) -> None:
        if step:
            raise CheckpointDamaged(path=f"step {step}", why="this loop writes no checkpoints")
        with torch.no_grad():
            for name, tensor in self._state.items():
                tensor.copy_(self._initial[name])

    def fingerprint(self) -> str:
        return fingerprint(self._state)

    def agree(self, flag: bool) -> bool:
        return flag

    def sample_ids(self, step: int, leaf: int) -> tuple[int, ...]:
        return ()

    def _name_state(self) -> dict[str, Tensor]:
        state = {f"model.{name}": value for name, value in self._model.state_dict().items()}
        for index, parameter in enumerate(self._parameters):
            for name, value in self._optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    state[f"optim.{index}.{name}"] = value
        state["progress.step"] = self._count
        return state


def _make_optimizer_state(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
    """Bring the optimiser's lazily made state into being, as zeros, leaving parameters alone.

    A learner must have every tensor before its first step, to receive its peers' bytes in.
    """
    kept = [p.detach().clone() for p in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.copy_(value)
            for tensor in optimizer.state[parameter].values():
                if isinstance(tensor, Tensor):
                    tensor.zero_()
