"""Configuration: frozen dataclasses, filled from a TOML file and from dotted overrides.

Owns reading, type checking, writing and describing of settings.  What the settings are is the
business of the component they belong to: a dataclass beside it, with a default and a type per
field; a field whose type is a dataclass is a section.  A field's ``metadata={"why": ...}`` is the
reason for its default.

An unknown name or a value of another type is a ``ConfigError`` that names the nearest legal one.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from danaus.core.coercion import coerce, section_of
from danaus.core.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One resolved setting: its dotted name, its value, and why it has it."""

    name: str
    value: Any
    default: Any
    reason: str

    @property
    def is_default(self) -> bool:
        """Tell whether nobody asked for another value."""
        return bool(self.value == self.default)


def load(
    cls: type[T],
    *,
    base: object = None,
    toml: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> T:
    """Build ``cls`` from its defaults, then ``base``, then the file, then the overrides.

    Args:
        cls: A dataclass whose fields have types that ``danaus.core.coercion`` knows.
        base: Settings to start from (a preset): of ``cls`` or of one it extends; None for none.
        toml: A file with a table per section; None for none.
        overrides: Values by dotted name (``data.path``; ``-`` reads as ``_``), as text or typed.

    Raises:
        ConfigError: the file cannot be read, or a name or a value is not legal.
    """
    given = _read(toml) if toml is not None else {}
    _check_names(cls, given, where=f" in {toml}")
    asked = _nested(overrides or {})
    _check_names(cls, asked, where="")
    below = {} if base is None else dump(base)
    built: T = _build(cls, _merged(_merged(below, given), asked), prefix="")
    return built


def dump(settings: object) -> dict[str, Any]:
    """Return the settings as nested dicts of plain values, as JSON knows them."""
    values = {field.name: getattr(settings, field.name) for field in _fields(settings)}
    return {name: _plain(value) for name, value in values.items()}


def toml_text(settings: object) -> str:
    """Return the settings as a TOML file that ``load`` reads back to an equal value."""
    lines: list[str] = []
    _write_section(dump(settings), "", lines)
    return "\n".join(lines).strip() + "\n"


def describe(settings: object) -> tuple[Setting, ...]:
    """Return every setting with its value and the reason for it, sections in order."""
    return tuple(_describe(settings, None, ""))


def names(cls: type) -> tuple[str, ...]:
    """Return every legal dotted name, in order."""
    found: list[str] = []
    hints = get_type_hints(cls)
    for field in _fields(cls):
        section = section_of(hints[field.name])
        found += [f"{field.name}.{name}" for name in names(section)] if section else [field.name]
    return tuple(found)


def _fields(cls: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if field.init]


def _read(toml: Path) -> dict[str, Any]:
    try:
        with toml.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read settings from {toml}", error.strerror or "") from error
    except ValueError as error:  # bad TOML and bad UTF-8
        raise ConfigError(f"{toml} is not a TOML file", str(error)) from error


def _nested(overrides: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for dotted, value in overrides.items():
        *sections, last = dotted.replace("-", "_").split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{section} is set twice", f"as a value and in {dotted}")
        table[last] = value
    return tree


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[name] = _merged(under, value) if both else value  # type: ignore[arg-type]
    return merged


def _check_names(cls: type, values: Mapping[str, Any], where: str) -> None:
    _check_section(cls, values, "", (names(cls), where))


def _check_section(
    cls: type, values: Mapping[str, Any], prefix: str, legal: tuple[tuple[str, ...], str]
) -> None:
    hints = get_type_hints(cls)
    known = {field.name for field in _fields(cls)}
    for name, value in values.items():
        if name not in known:
            raise _unknown(prefix + name, *legal)
        section = section_of(hints[name])
        if section and isinstance(value, Mapping):
            _check_section(section, value, f"{prefix}{name}.", legal)


def _unknown(name: str, legal: tuple[str, ...], where: str) -> ConfigError:
    last = name.rpartition(".")[2]
    near = difflib.get_close_matches(name, legal, n=1)
    near += [other for other in legal if other.rpartition(".")[2] == last]
    near += difflib.get_close_matches(last, {each.rpartition(".")[2] for each in legal}, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(legal)}"
    return ConfigError(f"unknown setting {name!r}{where}", to_do=hint)


def _build(cls: type, values: Mapping[str, Any], prefix: str) -> Any:
    hints = get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in _fields(cls):
        name, section = prefix + field.name, section_of(hints[field.name])
        if field.name in values:
            value = values[field.name]
            if section and isinstance(value, Mapping):
                arguments[field.name] = _build(section, value, f"{name}.")
            else:
                arguments[field.name] = coerce(value, hints[field.name], name)
        elif _has_no_default(field):
            raise ConfigError(f"setting {name!r} is missing", "it has no default")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ConfigError(f"settings of {prefix.rstrip('.') or 'the run'}", str(error)) from error


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return dump(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(each) for each in value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _write_section(values: dict[str, Any], prefix: str, lines: list[str]) -> None:
    for name, value in values.items():
        if not isinstance(value, dict):
            lines.append(f"{_toml_key(name)} = {_toml_value(value)}")
    for name, value in values.items():
        if isinstance(value, dict):
            lines += ["", f"[{prefix}{_toml_key(name)}]"]
            _write_section(value, f"{prefix}{_toml_key(name)}.", lines)


def _toml_key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isascii() and bare.isalnum() else _toml_value(name)


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(each) for each in value)}]"
    return '"' + "".join(_toml_escape(each) for each in value) + '"'


def _toml_escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _describe(settings: Any, defaults: Any, prefix: str) -> Iterator[Setting]:
    for field in _fields(settings):
        value, name = getattr(settings, field.name), prefix + field.name
        default = _default(field) if defaults is None else getattr(defaults, field.name)
        if dataclasses.is_dataclass(value):
            inner = default if type(default) is type(value) else None
            yield from _describe(value, inner, f"{name}.")
            continue
        why = "given" if value != default else field.metadata.get("why", "default")
        yield Setting(name, value, default, str(why))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
