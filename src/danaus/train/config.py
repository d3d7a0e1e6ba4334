"""What a training run is asked for: each section's settings, and the checks between them.

Owns ``TrainConfig`` and the sections of this room.  Imports no torch: a controller reads it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field

from danaus.core.errors import ConfigError
from danaus.ft.saving import SavePlan
from danaus.ft.step_plan import Bits
from danaus.model.config import LlamaConfig
from danaus.platform.choice import PlatformConfig

# Token counts travel as fp32 beside the gradient; above this they would not be exact.
MOST_TOKENS_PER_STEP = 2**24


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the text is.

    Args:
        path: A file or a folder; empty: the Python standard library's own source.
        pattern: Which of a folder's files are read (``*.txt``); empty: all, or ``*.py`` of the
            standard library.
        max_bytes: Reading stops here; 0: no limit, or 4 MiB of the standard library.
    """

    path: str = ""
    pattern: str = ""
    max_bytes: int = 0

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise ConfigError(f"data.max_bytes is {self.max_bytes}", "at least 0 (0: no limit)")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """AdamW and its schedule.

    Args:
        lr: Highest learning rate.
        min_lr_ratio: The last step's rate as a part of ``lr``, 0 to 1.
        warmup_steps: Steps of linear rise before the cosine falls.
        beta1: Decay of the mean.
        beta2: Decay of the mean square.
        eps: Added to the root of the mean square.
        weight_decay: Decoupled, of matrices only.
        clip_norm: Longest gradient (2-norm); 0: not clipped.
    """

    lr: float = 3e-3
    min_lr_ratio: float = 0.1
    warmup_steps: int = 20
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        checks = {
            "lr": (self.lr > 0, "more than 0"),
            "min_lr_ratio": (0 <= self.min_lr_ratio <= 1, "from 0 to 1"),
            "warmup_steps": (self.warmup_steps >= 0, "at least 0"),
            "beta1": (0 <= self.beta1 < 1, "from 0 to below 1"),
            "beta2": (0 <= self.beta2 < 1, "from 0 to below 1"),
            "eps": (self.eps > 0, "more than 0"),
            "weight_decay": (self.weight_decay >= 0, "at least 0"),
            "clip_norm": (self.clip_norm >= 0, "at least 0 (0: not clipped)"),
        }
        for name, (holds, needed) in checks.items():
            if not holds:
                raise ConfigError(f"optim.{name} is {getattr(self, name)}", needed)


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """The constant global batch and how it is shared.

    Args:
        num_microbatches: Microbatches of one step, whoever computes them.
        leaf_size: Microbatches in a leaf, the unit that is shared; divides the former.
        microbatch_size: Rows (windows of text) in a microbatch.
        seq_len: Tokens in a row.
        num_steps: Steps of the run.
        seed: Fixes initial weights, the order of samples and every other draw.
        batch: constant: a step is the same microbatches, whoever is alive. elastic: a step
            shrinks with its members; what it leaves out is not read in that pass over the text,
            and the bits are no longer those of an undisturbed run.
        bits: exact: sums have one order, so that an undisturbed run comes to the same bits. off:
            each replica sends one sum of what it computed; faster where exact sends several. auto:
            exact on CPUs, off on devices.
    """

    num_microbatches: int = 8
    leaf_size: int = 1
    microbatch_size: int = 2
    seq_len: int = 128
    num_steps: int = 400
    seed: int = 1
    batch: str = "constant"
    bits: str = "auto"

    def __post_init__(self) -> None:
        for name in ("num_microbatches", "leaf_size", "microbatch_size", "seq_len", "num_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"step.{name} is {getattr(self, name)}", "at least 1")
        if self.num_microbatches % self.leaf_size:
            raise ConfigError(
                f"step.num_microbatches {self.num_microbatches} with "
                f"step.leaf_size {self.leaf_size}",
                "num_microbatches must be a multiple of leaf_size",
            )
        if self.batch not in ("constant", "elastic"):
            raise ConfigError(f"step.batch is {self.batch!r}", "constant or elastic")
        if self.bits not in ("auto", "exact", "off"):
            raise ConfigError(f"step.bits is {self.bits!r}", "auto, exact or off")
        if self.num_tokens > MOST_TOKENS_PER_STEP:
            raise ConfigError(
                f"a step of {self.num_tokens} tokens",
                f"at most {MOST_TOKENS_PER_STEP}",
                "lower step.num_microbatches, step.microbatch_size or step.seq_len",
            )

    def bits_on(self, device: str) -> tuple[Bits, str]:
        """Return whether sums have one order (T-4) on a kind of device, and why."""
        if self.bits == "exact":
            return "exact", "as step.bits says"
        if self.bits == "off":
            return "off", "as step.bits says"
        if device == "cpu":
            return "exact", "auto: on CPUs the same bits cost little"
        return "off", f"auto: on {device} the same bits would take slower kernels"

    @property
    def num_leaves(self) -> int:
        """Leaves in a step."""
        return self.num_microbatches // self.leaf_size

    @property
    def num_tokens(self) -> int:
        """Tokens in a step."""
        return self.num_microbatches * self.microbatch_size * self.seq_len


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """How one replica spreads over processes.

    Args:
        shard: Worker processes of a replica; parameters and optimiser are sharded over them.
    """

    shard: int = 1

    def __post_init__(self) -> None:
        if self.shard < 1:
            raise ConfigError(f"parallel.shard is {self.shard}", "at least 1")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When the state is written to disk.

    Args:
        every_steps: Steps from one to the next; 0: by time.
        every_s: Seconds from one to the next, more where checkpoints would keep the training for
            more than 1 % of the time; 0, with every_steps 0: none is written.
        keep: How many of the newest are kept.
    """

    every_steps: int = 0
    every_s: float = 900.0
    keep: int = 2

    def __post_init__(self) -> None:
        if self.every_steps < 0:
            raise ConfigError(f"checkpoint.every_steps is {self.every_steps}", "at least 0")
        if not self.every_s >= 0:
            raise ConfigError(f"checkpoint.every_s is {self.every_s}", "at least 0")
        if self.keep < 1:
            raise ConfigError(f"checkpoint.keep is {self.keep}", "at least 1")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All of it; sections are the keys of the TOML file and of ``--section.field``."""

    model: LlamaConfig = field(default_factory=LlamaConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    step: StepConfig = field(default_factory=StepConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    platform: PlatformConfig = field(default_factory=PlatformConfig)

    def __post_init__(self) -> None:
        if self.step.microbatch_size % self.parallel.shard:
            raise ConfigError(
                f"step.microbatch_size {self.step.microbatch_size} with "
                f"parallel.shard {self.parallel.shard}",
                "microbatch_size must be a multiple of shard (each rank computes its rows)",
            )
        if self.model.vocab_size < 256:
            raise ConfigError(
                f"model.vocab_size is {self.model.vocab_size}", "at least 256 (tokens are bytes)"
            )

    def save_plan(self) -> SavePlan:
        """Return when the state is written to disk."""
        save = self.checkpoint
        return SavePlan(save.every_steps, save.every_s, self.step.num_steps)

    def identity(self) -> str:
        """Return a digest of every setting that makes it the same training.

        The data's place is none of it.  Nor is over how many ranks a replica is sharded, on which
        the order of sums depends: two runs with one identity, the same text, like platforms and
        that number the same make the same bits.
        """
        facts = {
            name: dataclasses.asdict(getattr(self, name)) for name in ("model", "optim", "step")
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
