"""The trainer of Llama-class models.

The public face: names are loaded when they are first used; ``__init__.pyi`` says what they are.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "ByteText": "danaus.train.data",
    "CheckpointConfig": "danaus.train.config",
    "DataConfig": "danaus.train.config",
    "OptimConfig": "danaus.train.config",
    "ParallelConfig": "danaus.train.config",
    "ReplicaWork": "danaus.train.replica",
    "ShardPlace": "danaus.train.parallel",
    "StepConfig": "danaus.train.config",
    "StepResult": "danaus.train.trainer",
    "TrainConfig": "danaus.train.config",
    "Trainer": "danaus.train.trainer",
    "preset": "danaus.train.presets",
    "run_plain": "danaus.train.plain",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
