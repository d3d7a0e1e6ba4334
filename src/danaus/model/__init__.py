"""Networks as plain torch: the public face (names are loaded when first used)."""

from __future__ import annotations

from importlib import import_module

_HOMES = {
    "Llama": "danaus.model.llama",
    "LlamaConfig": "danaus.model.config",
    "initial_value": "danaus.model.initial",
}
__all__ = ["Llama", "LlamaConfig", "initial_value"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
