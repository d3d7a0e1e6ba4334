"""Steps that commit at all replicas or at none, for a training loop of your own.

The public face: names are loaded when they are first used; ``__init__.pyi`` says what they are.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Attempt": "danaus.ft.attempt",
    "Committed": "danaus.ft.ledger",
    "DiLoCo": "danaus.ft.diloco",
    "DistributedDataParallel": "danaus.ft.data_parallel",
    "DistributedSampler": "danaus.ft.sampler",
    "Diverged": "danaus.core.errors",
    "Leaf": "danaus.ft.attempt",
    "Ledger": "danaus.ft.ledger",
    "LighthouseClient": "danaus.ft.lighthouse",
    "LighthouseServer": "danaus.ft.lighthouse",
    "LocalSGD": "danaus.ft.local_sgd",
    "Loop": "danaus.ft.loop",
    "Manager": "danaus.ft.managing",
    "ManagerOptions": "danaus.ft.managed_place",
    "Moment": "danaus.ft.observer",
    "NoQuorum": "danaus.core.errors",
    "Observer": "danaus.ft.observer",
    "Opened": "danaus.ft.ledger",
    "Optimizer": "danaus.ft.managed_optimizer",
    "Participant": "danaus.ft.participant",
    "Pending": "danaus.ft.pending",
    "Place": "danaus.ft.place",
    "ShareUnfit": "danaus.core.errors",
    "Step": "danaus.ft.loop",
    "StepImpossible": "danaus.core.errors",
    "StepPlan": "danaus.ft.step_plan",
    "StepResult": "danaus.ft.work",
    "Work": "danaus.ft.work",
    "WorldSizeMode": "danaus.ft.contributions",
    "defer_compiler": "danaus.ft.deferred_compiler",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
