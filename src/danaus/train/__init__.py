"""The trainer: the public face (names are loaded when first used)."""

from __future__ import annotations

from importlib import import_module

_HOMES = {
    "ByteText": "danaus.train.data",
    "CheckpointConfig": "danaus.train.config",
    "DataConfig": "danaus.train.config",
    "OptimConfig": "danaus.train.config",
    "ParallelConfig": "danaus.train.config",
    "ShardPlace": "danaus.train.parallel",
    "StepConfig": "danaus.train.config",
    "StepResult": "danaus.train.trainer",
    "TrainConfig": "danaus.train.config",
    "Trainer": "danaus.train.trainer",
    "preset": "danaus.train.presets",
    "run_plain": "danaus.train.plain",
}
__all__ = [
    "ByteText",
    "CheckpointConfig",
    "DataConfig",
    "OptimConfig",
    "ParallelConfig",
    "ShardPlace",
    "StepConfig",
    "StepResult",
    "TrainConfig",
    "Trainer",
    "preset",
    "run_plain",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
