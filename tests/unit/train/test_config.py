"""Settings that cannot work are refused in one sentence, before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from danaus.core.errors import ConfigError
from danaus.model.config import LlamaConfig
from danaus.platform.choice import PlatformConfig
from danaus.train.config import (
    CheckpointConfig,
    DataConfig,
    OptimConfig,
    ParallelConfig,
    StepConfig,
    TrainConfig,
)
from danaus.train.presets import PRESETS, preset

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no microbatch": (lambda: StepConfig(num_microbatches=0), "num_microbatches is 0: at least 1"),
    "no leaf": (lambda: StepConfig(leaf_size=0), "leaf_size is 0"),
    "leaf": (lambda: StepConfig(num_microbatches=8, leaf_size=3), "a multiple of leaf_size"),
    "no row": (lambda: StepConfig(microbatch_size=0), "microbatch_size is 0"),
    "no token": (lambda: StepConfig(seq_len=0), "seq_len is 0"),
    "no step": (lambda: StepConfig(num_steps=0), "num_steps is 0"),
    "tokens": (lambda: StepConfig(seq_len=2**21), "a step of 33554432 tokens: at most 16777216"),
    "no process": (lambda: ParallelConfig(shard=0), "shard is 0"),
    "rows": (lambda: TrainConfig(parallel=ParallelConfig(shard=3)), "a multiple of shard"),
    "every": (lambda: CheckpointConfig(every_steps=-1), "every_steps is -1"),
    "keep": (lambda: CheckpointConfig(keep=0), "keep is 0"),
    "bytes": (lambda: DataConfig(max_bytes=-1), "max_bytes is -1"),
    "lr": (lambda: OptimConfig(lr=0.0), r"optim\.lr is 0.0: more than 0"),
    "beta": (lambda: OptimConfig(beta2=1.0), "beta2 is 1.0"),
    "clip": (lambda: OptimConfig(clip_norm=-1.0), "clip_norm is -1.0"),
    "nan": (lambda: OptimConfig(lr=float("nan")), "lr is nan"),
    "no layer": (lambda: LlamaConfig(num_layers=0), "num_layers is 0"),
    "heads": (lambda: LlamaConfig(dim=100, num_heads=8), "a multiple of 2"),
    "kv": (lambda: LlamaConfig(num_heads=4, num_kv_heads=3), "a multiple of num_kv_heads"),
    "eps": (lambda: LlamaConfig(norm_eps=0.0), "norm_eps is 0.0"),
    "vocabulary": (lambda: TrainConfig(model=LlamaConfig(vocab_size=100)), "at least 256"),
    "device": (lambda: PlatformConfig(device="tpu"), "device is 'tpu': one of auto, cpu"),
    "threads": (lambda: PlatformConfig(num_threads=0), "num_threads is 0"),
    "preset": (lambda: preset("lama"), "no preset is called 'lama': there are debug"),
}


@pytest.mark.parametrize(("make", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_presets_are_what_they_say() -> None:
    debug = preset("debug")
    assert 200_000 < debug.model.num_parameters < 500_000
    assert (debug.step.num_leaves, debug.step.seq_len) == (8, 128)
    for name, entry in PRESETS.items():
        assert preset(name) == entry.make()


def test_identity_is_of_what_the_bits_depend_on() -> None:
    config = preset("debug")
    assert config.identity() == preset("debug").identity()
    other_disk = replace(config, checkpoint=CheckpointConfig(every_steps=7))
    assert other_disk.identity() == config.identity()
    cut_otherwise = replace(config, parallel=ParallelConfig(shard=2))
    assert cut_otherwise.identity() == config.identity(), "its checkpoints can be read"
    for changed in (
        replace(config, step=replace(config.step, seed=2)),
        replace(config, optim=OptimConfig(lr=1e-4)),
        replace(config, model=LlamaConfig(tied=False)),
    ):
        assert changed.identity() != config.identity()
