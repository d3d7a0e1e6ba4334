"""The trainer of one process: its network, its optimiser, its samples.

Owns what a step computes and what it changes.  Knows nothing of quorums, replicas or votes: it
is told which microbatches to compute, and when a reduced gradient is to be applied.

Steps count from 1; ``step`` is how many are applied.  A flat gradient is one fp32 vector: the
local part of every parameter, in the order of ``named_parameters``, then the sum of the token
losses and the number of tokens (``TAIL`` elements).

Invariants:
    T-2: ``compute_leaf`` and ``check`` change nothing that a later step could see.
    T-4: a leaf's bits are a function of the state, the step and its microbatches.
    T-5: gradients are sums over tokens, divided once, in ``apply``, by the tokens of the step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from danaus.collectives.fingerprint import Fingerprints
from danaus.collectives.finite import is_finite
from danaus.core.errors import ConfigError, InternalError
from danaus.ft.buffers import BufferWatch
from danaus.model.initial import draw_seed, initial_value
from danaus.model.llama import Llama
from danaus.train.config import TrainConfig
from danaus.train.data import ByteText
from danaus.train.flat import TAIL, FlatLayout
from danaus.train.optim import AdamW, gradient_norm_square, learning_rate
from danaus.train.parallel import ALONE, ShardPlace
from danaus.train.resharding import Piece
from danaus.train.text import shape_of

Fingerprint = Callable[[Mapping[str, Tensor]], str]


@dataclass(frozen=True)
class StepResult:
    """What a committed step was.

    Args:
        step: Its number, from 1.
        loss: Mean loss per token of the global batch, nats.
        grad_norm: Norm of the mean gradient before clipping.
        num_tokens: Of the global batch.
        lr: The learning rate of the update.
    """

    step: int
    loss: float
    grad_norm: float
    num_tokens: int
    lr: float


class Trainer:
    """Compute leaves, apply reduced gradients, hand out and take in the state.

    Args:
        config: The run.
        place: This process's place in its replica.
        make_network: Builds the network; default: the configured Llama.
        fingerprint: Digests named tensors (Q-9); default: the collectives room's.
        scratch_buffers: Names of buffers that a forward may mutate because no result depends
            on what they hold; they are neither state nor compared.

    Raises:
        ConfigError: The text cannot be used, or the place does not fit the configuration.
    """

    def __init__(
        self,
        config: TrainConfig,
        place: ShardPlace = ALONE,
        *,
        make_network: Callable[[], nn.Module] | None = None,
        fingerprint: Fingerprint | None = None,
        scratch_buffers: frozenset[str] = frozenset(),
    ) -> None:
        if place.size != config.parallel.shard:
            raise ConfigError(
                f"a replica of {place.size} processes", f"parallel.shard is {config.parallel.shard}"
            )
        self.config, self.place = config, place
        self._fingerprint = fingerprint or Fingerprints().of
        self.data = ByteText(config.data, shape_of(config.step), config.step.seed)
        self._make_network = make_network or (lambda: Llama(config.model))
        self._scratch_buffers = scratch_buffers
        self._build()
        self.layout = FlatLayout(self._local)
        self._optimizer = AdamW(self._local, config.optim)
        self._count = torch.zeros(1, dtype=torch.int64)
        self._state = self._name_state()
        self._leaf = torch.zeros(self.layout.num_elements)
        self.reset()

    def _build(self) -> None:
        self.network = self._make_network()
        self.place.shard(self.network)
        self._parameters = dict(self.network.named_parameters())
        self._local = {name: self.place.local(each) for name, each in self._parameters.items()}
        self._watch = BufferWatch(self.network, self._scratch_buffers)

    def build_again(self) -> None:
        """Build the network anew around the state that is held; the state's bits stay (H-3).

        A collective that broke off may leave a sharded network in the middle of a pass.
        """
        held = self._local
        self._build()
        with torch.no_grad():
            for name, tensor in self._local.items():
                tensor.copy_(held[name])
        self._optimizer.move(self._local)
        self._state = self._name_state()

    # -- what there is ----------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many steps are applied."""
        return int(self._count)

    @property
    def done(self) -> bool:
        """Tell whether the run's last step is applied."""
        return self.step >= self.config.step.num_steps

    @property
    def num_leaves(self) -> int:
        """Leaves of a step."""
        return self.config.step.num_leaves

    @property
    def num_elements(self) -> int:
        """Length of a flat gradient of this process, its tail included."""
        return self.layout.num_elements

    @property
    def identity(self) -> str:
        """Digest of the settings and the text: all that the bits depend on, machines excepted."""
        return f"{self.config.identity()}-{self.data.digest}"

    def leaf_microbatches(self, leaf: int) -> range:
        """Return the microbatches of one leaf, in the order they are accumulated."""
        size = self.config.step.leaf_size
        return range(leaf * size, (leaf + 1) * size)

    def sample_ids(self, step: int, leaf: int) -> tuple[int, ...]:
        """Return the samples of one leaf of one step, whoever computes it."""
        each = (self.data.sample_ids(step, m) for m in self.leaf_microbatches(leaf))
        return tuple(sample for ids in each for sample in ids)

    # -- a step -----------------------------------------------------------------------------

    def compute_leaf(
        self, step: int, microbatches: Sequence[int], *, out: Tensor | None = None
    ) -> Tensor:
        """Return the gradient of some microbatches, accumulated left to right.

        With several ranks all of them call this together, with the same arguments.

        Args:
            step: The step, one above those applied.
            microbatches: Which, in order.
            out: ``[num_elements]`` fp32, overwritten and returned; default: a buffer of the
                trainer's own, valid until the next call.

        Raises:
            ConfigError: The forward mutated a buffer that is not declared (T-2).
        """
        if step != self.step + 1:
            raise InternalError("T-2", f"leaf of step {step} asked for after step {self.step}")
        flat = self._leaf if out is None else out
        flat.zero_()
        tail = flat[-TAIL:]
        with self._gradients_into(flat):
            for place, microbatch in enumerate(microbatches):
                self.place.sync_gradients(self.network, last=place == len(microbatches) - 1)
                loss, num_tokens = self._microbatch(step, microbatch)
                tail[0] += loss
                tail[1] += num_tokens
        self.place.add_up(tail)
        return flat

    @contextmanager
    def _gradients_into(self, flat: Tensor) -> Iterator[None]:
        """Have backwards accumulate in ``flat``, and leave no gradient behind (T-2)."""
        views = self.layout.views(flat)
        in_place = self.place.size == 1
        try:
            for name, parameter in self._parameters.items():
                parameter.grad = views[name] if in_place else None
            yield
            if not in_place:
                for name, parameter in self._parameters.items():
                    if parameter.grad is not None:
                        views[name].copy_(self.place.local(parameter.grad))
        finally:
            for parameter in self._parameters.values():
                parameter.grad = None

    def _microbatch(self, step: int, microbatch: int) -> tuple[Tensor, int]:
        """Run one microbatch forward and backward; return its loss (a sum) and its tokens."""
        tokens_BT, targets_BT, _ = self.data.batch(step, microbatch)
        rows = self.place.rows(tokens_BT.shape[0])
        tokens_BT, targets_BT = tokens_BT[rows], targets_BT[rows]
        with torch.random.fork_rng(devices=[]):
            seed = self.config.step.seed
            # Not torch.manual_seed, which looks for devices each time: this trains on the CPU.
            torch.default_generator.manual_seed(
                draw_seed("forward", seed, step, microbatch, self.place.rank)
            )
            logits_BTV = self.network(tokens_BT)
            loss = F.cross_entropy(
                logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), reduction="sum"
            )
            loss.backward()  # type: ignore[no-untyped-call]
        self._watch.check()
        return loss.detach(), targets_BT.numel()

    def check(self, flat: Tensor) -> str | None:
        """Return why a reduced gradient must not be applied, or None; changes nothing.

        Args:
            flat: ``[num_elements]`` fp32.
        """
        if not is_finite(flat):
            return f"the gradient is not finite in {self.layout.first_not_finite(flat)}"
        step, num_tokens = self.config.step, float(flat[-1])
        short = step.batch == "elastic" and 0 < num_tokens < step.num_tokens
        if num_tokens != step.num_tokens and not short:
            return f"{num_tokens:.0f} tokens of {step.num_tokens} were summed"
        return None

    def measure(self, flat: Tensor) -> float:
        """Return the squared norm of this rank's part of the gradient; changes nothing.

        Args:
            flat: ``[num_elements]`` fp32: the sum over all leaves.
        """
        return gradient_norm_square(list(self.layout.views(flat).values()))

    def apply(self, step: int, flat: Tensor, measures: Sequence[float]) -> StepResult:
        """Apply a step's reduced gradient, in place.

        Args:
            step: The step, one above those applied.
            flat: ``[num_elements]`` fp32: the sum over all leaves; scaled in place.
            measures: What ``measure`` returned at every rank of this replica, by rank.
        """
        if step != self.step + 1:
            raise InternalError("T-1", f"step {step} applied after step {self.step}")
        loss_sum, num_tokens = float(flat[-2]), float(flat[-1])
        gradients = self.layout.views(flat)
        flat[:-TAIL].div_(num_tokens)
        grad_norm = sum(measures) ** 0.5 / num_tokens
        clip = self.config.optim.clip_norm
        if clip and grad_norm > clip:
            flat[:-TAIL].mul_(clip / grad_norm)
        lr = learning_rate(step, self.config.step.num_steps, self.config.optim)
        self._optimizer.apply(gradients, step=step, lr=lr)
        self._count.fill_(step)
        return StepResult(
            step=step,
            loss=loss_sum / num_tokens,
            grad_norm=grad_norm,
            num_tokens=int(num_tokens),
            lr=lr,
        )

    # -- state ------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return all that a step changes, by name, in a fixed order: the very tensors.

        Writing into them *is* loading; what was half written must be written again or ``reset``.
        """
        return dict(self._state)

    def load(self, named: Mapping[str, Tensor]) -> None:
        """Copy a state in place; references to the tensors stay valid.

        Raises:
            ConfigError: Names, shapes or dtypes differ; nothing is changed then.
        """
        _check_fit(self._state, named)
        with torch.no_grad():
            for name, tensor in self._state.items():
                tensor.copy_(named[name])

    def reset(self) -> None:
        """Return to the state before the first step: the seed's (T-6)."""
        seed, num_layers = self.config.step.seed, self.config.model.num_layers
        with torch.no_grad():
            for tensor in self._state.values():
                tensor.zero_()
            for name, parameter in self._parameters.items():
                full = initial_value(name, parameter.shape, seed=seed, num_layers=num_layers)
                self._local[name].copy_(self.place.cut(full, parameter))

    def pieces(self) -> dict[str, Piece]:
        """Return which tensors of the state are some rows of a whole, and of what whole."""
        sharded = {name: self.place.piece(value) for name, value in self._parameters.items()}
        return {
            f"{kind}.{name}": piece
            for kind in ("model", "optim.exp_avg", "optim.exp_avg_sq")
            for name, piece in sharded.items()
            if piece is not None
        }

    def fingerprint(self) -> str:
        """Digest parameters and optimiser state, on the device (Q-9)."""
        return self.fingerprint_of(self._state)

    def fingerprint_of(self, named: Mapping[str, Tensor]) -> str:
        """Digest tensors as those of the state are."""
        return self._fingerprint(named)

    def sha256(self) -> str:
        """Digest every byte of this process's state, in the order of the names."""
        digest = hashlib.sha256()
        for name in sorted(self._state):
            tensor = self._state[name]
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _name_state(self) -> dict[str, Tensor]:
        state = {f"model.{name}": tensor for name, tensor in self._local.items()}
        for name, tensor in self._optimizer.exp_avg.items():
            state[f"optim.exp_avg.{name}"] = tensor
        for name, tensor in self._optimizer.exp_avg_sq.items():
            state[f"optim.exp_avg_sq.{name}"] = tensor
        state["progress.step"] = self._count
        return state


def _check_fit(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    odd = sorted(mine.keys() ^ theirs.keys())
    if odd:
        raise ConfigError(f"the state to load differs in {odd[0]}", "the same names")
    for name, tensor in mine.items():
        other = theirs[name]
        if (other.shape, other.dtype) != (tensor.shape, tensor.dtype):
            raise ConfigError(
                f"{name} to load is {tuple(other.shape)} {other.dtype}",
                f"{tuple(tensor.shape)} {tensor.dtype}",
            )
