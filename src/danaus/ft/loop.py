"""Fault tolerance for a loop of your own: a plain model, a plain optimiser, ten more lines.

Owns ``Loop``, which makes a participant of them, and ``Step``, what the loop's body sees.  The
constant global batch (T-3) is the default: a step is always the same microbatches, whoever is
alive, so that the result does not depend on who died.

Example::

    with Loop(model, optimizer, place, plan=StepPlan(num_steps=1000, num_leaves=8)) as loop:
        for step in loop.steps():
            for m in step.microbatches():
                loss_sum, num_tokens = loss_of(model, batch(step.number, m))
                step.backward(loss_sum, num_tokens)
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from danaus.core.errors import ConfigError, NoQuorum
from danaus.ft.attempt import Attempt
from danaus.ft.ledger import Ledger
from danaus.ft.observer import Observer
from danaus.ft.participant import Participant
from danaus.ft.place import Place
from danaus.ft.plain_work import PlainWork
from danaus.ft.step_plan import StepPlan


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

        Every sample must be a function of the step's number and the microbatch.  So is every draw
        from torch's default generator: it is seeded anew for each microbatch, from the seed that
        ``torch.manual_seed`` had set when the loop was made.

        Raises:
            ConfigError: A forward changed a buffer, ``backward`` was not called once for each
                microbatch, or gradients were taken away in between.
        """
        for leaf in self._attempt.leaves():
            self._work.begin_leaf()
            for microbatch in leaf.microbatches:
                self._work.seed_draws(self.number, microbatch)
                yield microbatch
            if not self._attempt.refusal:
                self._attempt.add(leaf, self._work.leaf(len(leaf.microbatches)))

    def backward(self, loss_sum: Tensor, num_tokens: int) -> None:
        """Add one microbatch.

        Args:
            loss_sum: Sum (not mean) of the losses of its tokens, a scalar.
            num_tokens: How many there are; gradients are divided by those of the whole step (T-5).
        """
        self._work.backward(loss_sum, num_tokens)

    def refuse(self, reason: str) -> None:
        """Make nobody commit this try; it is tried again."""
        self._attempt.refuse(reason)


class Loop:
    """Train ``model`` with ``optimizer`` as one replica of a run that goes through failures.

    The optimiser steps between two passes of the loop's body, and only where all replicas step.
    What has to happen just before it (clipping, say) is the optimiser's own hook
    (``register_step_pre_hook``): gradients are summed and divided by then.  A learning rate is set
    in the loop's body, as a function of the step's number; it stays so if the step is tried again.
    A replica that catches up takes the members' steps with their rates; what hooks into its
    optimiser must go by nothing but the parameters, their gradients and those numbers.
    A parameter that no loss reaches has a gradient of zeros, not none.

    Args:
        model: The same on every replica; where it is not, all take that of the lowest replica id.
            Float32, on the CPU.  A forward must change no buffer (T-2): batch norm in training
            does, and is refused.
        optimizer: Over the model's parameters; its state must be tensors.
        place: Who this process is; one rank per replica.
        plan: Steps of the run, and microbatches of a step, whoever computes them.
        ledger: Where each applied step is written (T-7).
        observer: Told of phases and committed steps.

    Raises:
        ConfigError: Several ranks, or a model or optimiser that cannot be trained this way.
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
                "Loop drives replicas of one process",
                "use Participant with a Work of your own",
            )
        self._work, self._num_steps = PlainWork(model, optimizer), plan.num_steps
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
        """Leave the run; safe to call twice."""
        self._participant.close()

    def steps(self) -> Iterator[Step]:
        """Hand out tries of steps until the run is done; leaves the run then.

        Raises:
            ConfigError: The loop's body left a try before its last microbatch.
            NoQuorum: The service refuses, or the run was finished before this replica could learn
                its state: the model is not the trained one.  Its words say what to do.
            Diverged: Replicas disagree after replaying (Q-9).
            StepImpossible: A step was refused again and again (a gradient that is not finite).
            ShareUnfit: For what this replica alone computed; the others go on without it.
        """
        try:
            for attempt in self._participant.attempts():
                yield Step(attempt, self._work)
            if not self._participant.left and self._participant.committed_step < self._num_steps:
                raise NoQuorum(
                    "the run is finished, and this replica came too late to learn its state",
                    "take the trained model from one that was there",
                )
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
