"""Where hosts come from.

The public face: names are loaded when they are first used; ``__init__.pyi`` says what they are.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "AttachedJob": "danaus.job.attached",
    "JobState": "danaus.job.local",
    "LocalJob": "danaus.job.local",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
