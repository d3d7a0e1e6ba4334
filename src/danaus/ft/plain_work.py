"""A plain model and optimiser as a ``Work``: whole on every replica, no checkpoints.

Owns ``PlainWork``: gradients of a leaf, the step of the optimiser, and all that a replica which
joins must receive.

Invariants:
    T-2: a forward that changes a buffer is refused.
    T-4: gradients are accumulated in float32, in the order of the microbatches; the draws of a
        microbatch are a function of (seed, step, microbatch).
    T-5: the gradient is divided by the tokens of the whole step, once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
import xxhash
from torch import Tensor, nn

from danaus.collectives.fingerprint import Fingerprints
from danaus.collectives.finite import is_finite
from danaus.core.errors import CheckpointDamaged, ConfigError
from danaus.ft.buffers import BufferWatch
from danaus.ft.optimizer_numbers import OptimizerNumbers
from danaus.ft.optimizer_state import OptimizerState
from danaus.ft.saving import SaveNote
from danaus.quorum.messages import MemberId

_TAIL = 2  # summed loss, number of tokens


@dataclass(frozen=True, slots=True)
class PlainResult:
    """What a committed step was."""

    loss: float
    grad_norm: float
    num_tokens: int


def seed_draws(seed: int, step: int, microbatch: int) -> None:
    """Seed torch's default generator for one microbatch, whoever computes it (T-4)."""
    # Not torch.manual_seed, which looks for devices each time: what is trained so is on the CPU.
    torch.default_generator.manual_seed(
        xxhash.xxh3_64_intdigest(b"%d %d %d" % (seed, step, microbatch))
    )


class PlainWork:
    """Train ``model`` with ``optimizer``, step by step as the commit protocol says.

    A copy of the initial state is kept, for a run that lost every replica.

    Args:
        model: Its trained parameters are float32 and in the memory of the CPU.
        optimizer: Over its parameters.

    Raises:
        ConfigError: The model or the optimiser cannot be trained this way.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        _refuse_odd(model)
        self._flat = torch.zeros(sum(p.numel() for p in self._parameters) + _TAIL)
        self._views = self._cut(self._flat)
        self._tail = self._flat[-_TAIL:]
        self._gradient = torch.empty(0)
        self._gradients: list[Tensor] = []
        self._num_added = 0
        self._watch = BufferWatch(model)
        self._optimizer_state = OptimizerState(optimizer, self._parameters)
        self._optimizer_numbers = OptimizerNumbers(optimizer)
        # As the step last applied had them: whoever joins goes on from there.
        self._noted = self.numbers
        self._numbers = torch.tensor(self._noted, dtype=torch.float64)
        self._initial_numbers = self._numbers.clone()
        self._named = _named_tensors(model)
        self._initial = {name: tensor.clone() for name, tensor in self._named.items()}
        # The seed travels with the state: replicas that were seeded otherwise take it over.
        self._progress = torch.tensor([0, torch.initial_seed() & (2**63 - 1)])
        self._initial_progress = self._progress.clone()
        self._fingerprints = Fingerprints()
        self.last_loss = float("nan")

    # -- gradients --------------------------------------------------------------------------

    def begin_leaf(self) -> None:
        """Begin to accumulate a leaf."""
        self._flat.zero_()
        self._num_added = 0
        self._watch.begin()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def seed_draws(self, step: int, microbatch: int) -> None:
        """Seed torch's default generator for one microbatch."""
        seed_draws(int(self._progress[1]), step, microbatch)

    def backward(self, loss_sum: Tensor, num_tokens: int) -> None:
        """Accumulate one microbatch."""
        loss_sum.backward()  # type: ignore[no-untyped-call]
        self._tail[0] += loss_sum.detach()
        self._tail[1] += num_tokens
        self._num_added += 1

    def leaf(self, num_microbatches: int) -> Tensor:
        """Return the leaf's gradient, ``[P]`` float32, valid until the next ``begin_leaf``.

        Raises:
            ConfigError: The loop's body did not do what it has to, or did more.
        """
        self._watch.check()
        if self._num_added != num_microbatches:
            raise ConfigError(
                f"backward was called {self._num_added} times for {num_microbatches} microbatches",
                "once for each (T-3)",
            )
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.grad is not view:
                raise ConfigError(
                    "a gradient was taken away or replaced within a step",
                    "gradients that accumulate until the step commits",
                    "leave out zero_grad() and set_to_none in the loop",
                )
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

    @property
    def replays(self) -> bool:
        """Always: a step goes by the state, the gradient and the optimiser's numbers, which travel.

        As long as what hooks into the optimiser's step goes by nothing else.  Where it does, the
        fingerprints tell, and the learner fetches the whole state.
        """
        return True

    @property
    def numbers(self) -> tuple[float, ...]:
        return self._optimizer_numbers.get()

    def tune(self, numbers: Sequence[float]) -> None:
        self._optimizer_numbers.set(numbers)

    def check(self, step: int, flat_P: Tensor) -> str | None:
        if not is_finite(flat_P):
            return "the gradient is not finite"
        return None if float(flat_P[-1]) > 0 else "the step has no tokens"

    def measure(self, flat_P: Tensor) -> float:
        """Nothing: such a loop's replicas are of one rank."""
        return 0.0

    def apply(self, step: int, flat_P: Tensor, measures: Sequence[float] = ()) -> PlainResult:
        loss_sum, num_tokens = flat_P[-_TAIL:].tolist()
        mean_P = flat_P[:-_TAIL].div_(num_tokens)
        if self._gradient is not flat_P:  # it is the same buffer in most steps
            self._gradient, self._gradients = flat_P, self._cut(flat_P)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        norm = float(torch.linalg.vector_norm(mean_P))
        self._note_numbers()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._optimizer_state.stepped()
        self._progress[0] = step
        self.last_loss = loss_sum / num_tokens
        return PlainResult(self.last_loss, norm, int(num_tokens))

    def _note_numbers(self) -> None:
        numbers = self.numbers
        if numbers != self._noted:
            self._numbers.copy_(torch.tensor(numbers, dtype=torch.float64))
            self._noted = numbers

    def state(self) -> dict[str, Tensor]:
        optimizer = {f"optim.{at}": each for at, each in self._optimizer_state.named().items()}
        facts = {"numbers": self._numbers, "progress": self._progress}
        return {**self._named, **optimizer, **facts}

    def loaded(self, step: int) -> None:
        self._optimizer_state.loaded(step)
        self._go_by_noted()

    def restorable_step(self) -> int:
        return 0

    def save_note(self, step: int) -> SaveNote:
        return SaveNote()

    def voted(
        self, step: int, fingerprints: Collection[str], notes: Mapping[MemberId, SaveNote]
    ) -> None:
        """Nothing to do: there are no checkpoints."""

    @torch.no_grad()
    def restore(self, step: int, term: int) -> None:
        if step:
            raise CheckpointDamaged(path=f"step {step}", why="this loop writes no checkpoints")
        for name, tensor in self._named.items():
            tensor.copy_(self._initial[name])
        self._optimizer_state.reset()
        self._progress.copy_(self._initial_progress)
        self._numbers.copy_(self._initial_numbers)
        self._go_by_noted()

    def _go_by_noted(self) -> None:
        """Go by the numbers that the state holds."""
        self._noted = tuple(self._numbers.tolist())
        self.tune(self._noted)

    def fingerprint(self) -> str:
        return self._fingerprints.of(self.state())

    def agree(self, flag: bool) -> bool:
        return flag

    def sample_ids(self, step: int, leaf: int) -> tuple[int, ...]:
        return ()


def _refuse_odd(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise ConfigError(f"parameter {name} is on {parameter.device}", "the CPU")
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise ConfigError(f"parameter {name} is {parameter.dtype}", "torch.float32")


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return all that the model's values depend on, buffers that are not saved included."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {f"model.{name}": tensor.detach() for name, tensor in named.items()}
