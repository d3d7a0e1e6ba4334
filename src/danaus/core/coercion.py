"""Turning what a file or a command line says into the type that a setting has.

Owns the types that settings may have: ``bool``, ``int``, ``float``, ``str``, ``Path``, ``Literal``,
enums, dataclasses, ``tuple``, ``list``, ``frozenset``, ``dict[str, ...]``, and unions of them.
Text is read as its type is written in Python or TOML; several values in one text stand between
commas; ``none`` is None where that is legal.  Nothing is rounded and nothing guessed: what does
not fit is a ``ConfigError``.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from danaus.core.errors import ConfigError

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def coerce(value: Any, hint: Any, name: str) -> Any:
    """Return ``value`` as ``hint`` asks for.

    Args:
        value: What was given: text, or a plain value as TOML knows them.
        hint: The setting's type.
        name: The setting's dotted name, for the message.

    Raises:
        ConfigError: it does not fit.
    """
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _union(value, hint, name)
    if origin is Literal:
        return _one_of(value, {str(each): each for each in get_args(hint)}, name)
    if origin in (tuple, list, frozenset):
        return _sequence(value, hint, name)
    if origin is dict:
        return _mapping(value, hint, name)
    return _scalar(value, hint, name)


def section_of(hint: Any) -> type | None:
    """Return the dataclass that a setting of this type is a section of, None if it is a value."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    sections = [each for each in options if isinstance(each, type) and _is_dataclass(each)]
    return sections[0] if len(sections) == 1 else None


def _is_dataclass(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _wrong(value: Any, needed: str, name: str) -> ConfigError:
    return ConfigError(f"setting {name!r} cannot be {value!r}", f"it needs {needed}")


def _scalar(value: Any, hint: Any, name: str) -> Any:
    if _is_dataclass(hint):
        if isinstance(value, hint):
            return value
        fields = ", ".join(f"{name}.{field.name}" for field in dataclasses.fields(hint))
        raise ConfigError(f"{name!r} is a section, not a value", f"its settings are {fields}")
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value if isinstance(value, hint) else _member(value, hint, name)
    if hint not in _READERS:
        raise TypeError(f"setting {name} has type {hint}, which no setting can have")
    reader, needed = _READERS[hint]
    try:
        return reader(value)
    except ValueError as error:
        raise _wrong(value, needed, name) from error


def _bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(text)
    return text in _TRUE


def _int(value: Any) -> int:
    if isinstance(value, str):
        return int(value, 0) if value.strip()[:2].lower() in ("0x", "0b", "0o") else int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(value)
    if math.isnan(number := float(value)):
        raise ValueError(value)
    return number


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError(value)
    return Path(value).expanduser()


def _none(value: Any) -> None:
    if value is not None and str(value).lower() != "none":
        raise ValueError(value)


_READERS: dict[Any, tuple[Callable[[Any], Any], str]] = {
    bool: (_bool, "true or false"),
    int: (_int, "a whole number"),
    float: (_float, "a number"),
    str: (_str, "text"),
    Path: (_path, "a path"),
    type(None): (_none, "none"),
}


def _union(value: Any, hint: Any, name: str) -> Any:
    options = sorted(get_args(hint), key=lambda option: option is not type(None))
    refusals = []
    for option in options:
        try:
            return coerce(value, option, name)
        except ConfigError as refusal:
            refusals.append(refusal.needed.removeprefix("it needs "))
    raise _wrong(value, " or ".join(refusals[1:] + refusals[:1]), name)


def _one_of(value: Any, legal: dict[str, Any], name: str) -> Any:
    if str(value) in legal:
        return legal[str(value)]
    near = difflib.get_close_matches(str(value), legal, n=1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    needed = f"it needs one of {', '.join(legal)}"
    raise ConfigError(f"setting {name!r} cannot be {value!r}", needed, hint)


def _member(value: Any, hint: type[enum.Enum], name: str) -> enum.Enum:
    by_text = {str(member.value): member for member in hint}
    by_name = {member.name: member for member in hint}
    found: enum.Enum = by_name.get(str(value)) or _one_of(value, by_text, name)
    return found


def _sequence(value: Any, hint: Any, name: str) -> Any:
    kind, args = get_origin(hint), get_args(hint)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _wrong(value, "a list", name)
    fixed = kind is tuple and args[-1] is not Ellipsis
    if fixed and len(args) != len(value):
        raise _wrong(value, f"exactly {len(args)} values", name)
    hints = args if fixed else args[:1] * len(value)
    return kind(coerce(each, of, name) for each, of in zip(value, hints, strict=True))


def _mapping(value: Any, hint: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, f"a table ({name}.KEY = VALUE)", name)
    _, of = get_args(hint)
    return {str(key): coerce(each, of, f"{name}.{key}") for key, each in value.items()}
