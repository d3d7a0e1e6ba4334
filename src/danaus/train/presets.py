"""Named configurations, each with a line that says what it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from danaus.core.errors import ConfigError
from danaus.model.config import LlamaConfig
from danaus.train.config import CheckpointConfig, StepConfig, TrainConfig


@dataclass(frozen=True)
class Preset:
    """A configuration by name."""

    about: str
    make: Callable[[], TrainConfig]


def _debug() -> TrainConfig:
    return TrainConfig(checkpoint=CheckpointConfig(every_steps=100))


def _debug_slow() -> TrainConfig:
    step = StepConfig(num_microbatches=32, leaf_size=1, microbatch_size=6, num_steps=30)
    return TrainConfig(
        model=LlamaConfig(dim=192, num_layers=3, num_heads=6, num_kv_heads=3, ffn_dim=512),
        step=step,
        checkpoint=CheckpointConfig(every_steps=10),
    )


PRESETS: dict[str, Preset] = {
    "debug": Preset("the demo's model: 377 thousand parameters, 0.2 s a step on one core", _debug),
    "debug_slow": Preset("1.3 million parameters, about 2 s a step on two cores", _debug_slow),
}


def preset(name: str) -> TrainConfig:
    """Return the configuration called ``name``.

    Raises:
        ConfigError: There is none; names those there are.
    """
    if name not in PRESETS:
        known = ", ".join(sorted(PRESETS))
        raise ConfigError(f"no preset is called {name!r}", f"there are {known}")
    return PRESETS[name].make()
