"""Where hosts come from."""

import importlib
from typing import Any

_EXPORTS = {"JobState": "local", "LocalJob": "local"}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    home = _EXPORTS.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
