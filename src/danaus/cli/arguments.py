"""From a command line to typed settings, and to their help.

Owns how arguments are spelled: ``--section.field value``, ``--section.field=value``, ``--flag`` and
``--no-flag`` for what is true or false, ``-`` and ``_`` alike in names, and places without a name
for fields that are marked so.  Types, values and nearest names are ``core.config``'s, the help is
``tyro``'s; both read the same dataclass.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from danaus.core.coercion import section_of
from danaus.core.config import load
from danaus.core.errors import ConfigError

T = TypeVar("T")

SHORT = {
    "chaos": "chaos.faults",
    "data": "data.path",
    "device": "platform.device",
    "ranks": "parallel.shard",
    "seed": "step.seed",
    "steps": "step.num_steps",
}
"""Short names of settings that are asked for often."""

REPEATED = frozenset(("chaos.faults",))
"""Settings whose option is given once for each value; a value may hold commas."""


@dataclass(frozen=True)
class Given:
    """What a command line gives: values in order, and settings by dotted name.

    A setting is text as it stands, of those that may be repeated a tuple of texts.
    """

    values: tuple[str, ...]
    settings: Mapping[str, Any]


def wants_help(arguments: Sequence[str]) -> bool:
    """Tell whether help is asked for."""
    before_values = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "-h" in before_values or "--help" in before_values


def read(arguments: Sequence[str], cls: type, command: str) -> Given:
    """Split a command line into values and settings of ``cls``.

    Args:
        arguments: What stands after the command.
        cls: The dataclass whose settings may be given.
        command: The command's name, for messages.

    Raises:
        ConfigError: A name is not legal, or has no value.
    """
    kinds = _kinds(cls)
    values: list[str] = []
    settings: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            values += rest
            break
        if not word.startswith("-") or word == "-":
            values.append(word)
            continue
        spelled, equals, value = word.partition("=")
        name, denied = _name(spelled, kinds, command)
        if equals and denied:
            raise ConfigError(f"{spelled} takes no value", to_do=f"write --{name}={value}")
        if not equals:
            value = _value(spelled, kinds[name], denied=denied, rest=rest)
        settings[name] = (*settings.get(name, ()), value) if name in REPEATED else value
    return Given(tuple(values), settings)


def build(cls: type[T], given: Given, places: Sequence[str], command: str) -> T:
    """Return settings of ``cls``, with the unnamed values in their ``places``.

    Raises:
        ConfigError: A value has the wrong type, or there are too few or too many.
    """
    wanted = " ".join(place.upper() for place in places)
    if len(given.values) > len(places):
        extra = given.values[len(places)]
        needed = f"danaus {command} takes {wanted}" if places else ""
        several = any(get_origin(kind) is tuple for kind in _kinds(cls).values())
        to_do = "several values of an option go into one word: u,v" if several else ""
        raise ConfigError(f"{extra!r} is one argument too many", needed, to_do)
    if len(given.values) < len(places):
        missing = places[len(given.values)].upper()
        raise ConfigError(f"{missing} is missing", f"danaus {command} takes {wanted}")
    named = dict(zip(places, given.values, strict=True))
    return load(cls, overrides={**given.settings, **named})


def show_help(cls: type, command: str, *, default: object = None) -> int:
    """Print the options of a command, with ``default``'s values if given; return its exit code."""
    import tyro

    options: dict[str, Any] = {} if default is None else {"default": default}
    lists = tyro.constructors.ConstructorRegistry()
    lists.primitive_rule(_list_in_help)
    with lists, contextlib.suppress(SystemExit):
        tyro.cli(
            cls,
            prog=f"danaus {command}",
            args=["--help"],
            config=(tyro.conf.PositionalRequiredArgs,),
            **options,
        )
    kinds = _kinds(cls)
    short = [f"--{name} for --{full}" for name, full in SHORT.items() if full in kinds]
    if short:
        print(f"short names: {', '.join(short).replace('_', '-')}")
    if repeated := [_spelled(name) for name in kinds if name in REPEATED]:
        print(f"once for each value: {', '.join(repeated)}")
    return 0


def _list_in_help(info: Any) -> Any:
    """Return how the help shows several values: in one word with commas, as they are given."""
    import tyro

    if get_origin(info.type) is not tuple:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{get_args(info.type)[0].__name__.upper()},...",
        instance_from_str=tuple,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(map(str, values))],
    )


def _kinds(cls: type) -> dict[str, Any]:
    """Return the type of every setting by dotted name."""
    kinds: dict[str, Any] = {}
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if section := section_of(hint):
            kinds |= {f"{field.name}.{name}": kind for name, kind in _kinds(section).items()}
        else:
            kinds[field.name] = hint
    return kinds


def _name(spelled: str, kinds: Mapping[str, Any], command: str) -> tuple[str, bool]:
    """Return the setting that an option names, and whether it denies it (``--no-flag``)."""
    name = spelled.lstrip("-").replace("-", "_")
    name = SHORT[name] if SHORT.get(name) in kinds else name
    if name in kinds:
        return name, False
    head, dot, last = name.rpartition(".")
    for allowed in (f"{head}{dot}{last.removeprefix('no_')}", name.removeprefix("no_")):
        if allowed in kinds and allowed != name and kinds[allowed] is bool:
            return allowed, True
    legal = [_spelled(n) for n in (*kinds, *(s for s, full in SHORT.items() if full in kinds))]
    near = difflib.get_close_matches(_spelled(name), legal, n=1) or _with_tail(last, legal)
    hint = f"did you mean {near[0]}?" if near else f"danaus {command} --help lists them"
    raise ConfigError(what=f"unknown option {spelled}", to_do=hint)


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _with_tail(last: str, legal: Sequence[str]) -> list[str]:
    """Return options whose last part is ``last`` or near to it: the section was left out."""
    tails = {each.removeprefix("--").rpartition(".")[2]: each for each in legal}
    return [tails[t] for t in difflib.get_close_matches(last.replace("_", "-"), tails, n=1)]


def _value(spelled: str, kind: Any, *, denied: bool, rest: list[str]) -> str:
    """Return the value of an option that has none after an equals sign; take it from ``rest``."""
    if kind is bool:
        if not denied and rest and rest[0].lower() in ("true", "false"):
            return rest.pop(0)
        return "false" if denied else "true"
    if not rest or (rest[0].startswith("--") and len(rest[0]) > 2):
        raise ConfigError(f"{spelled} needs a value")
    return rest.pop(0)
