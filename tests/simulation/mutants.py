"""Broken variants of the pure machines, made by changing one line of a function.

A mutant is put in place everywhere the function is known by name, dispatch tables included.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from typing import Any

import pytest


def put_in_place(patch: pytest.MonkeyPatch, where: str, *changes: tuple[str, str]) -> None:
    """Make textual changes (old, new) to the function at ``where`` (``module:Class.function``).

    Raises:
        AssertionError: The function does not hold an old text exactly once.
    """
    module_name, _, path = where.partition(":")
    module = importlib.import_module(module_name)
    owner: Any = module
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(original))
    for old, new in changes:
        assert source.count(old) == 1, f"{where} holds {source.count(old)} times: {old}"
        source = source.replace(old, new)
    space: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source}", where, "exec")
    exec(code, module.__dict__ | {}, space)
    mutant = _bound_to(module.__dict__, space[name])
    patch.setattr(owner, name, mutant)
    _everywhere(patch, original, mutant)


def _bound_to(scope: dict[str, Any], function: Any) -> Any:
    """Return the function looking its names up in ``scope``, so that other patches are seen."""
    kind = type(function)
    bound = kind(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    bound.__kwdefaults__ = function.__kwdefaults__
    return bound


def _everywhere(patch: pytest.MonkeyPatch, original: Any, mutant: Any) -> None:
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("danaus."):
            continue
        for name, value in list(vars(module).items()):
            if value is original:
                patch.setattr(module, name, mutant)
            elif name == "_HANDLERS":
                for key, handler in value.items():
                    if handler is original:
                        patch.setitem(value, key, mutant)
