"""Faults as text: ``kill:every=20s``, ``partition:host=1,peer=2,one_way=true,for=5s``.

Owns reading and writing of a spec: a kind and, after a colon, ``key=value`` between commas.
``write(read(text))`` is the normal form, which reads back to the same fault.  Pure.

    replica rank host        a number, as in ``replica-4`` and ``host1``, or ``random``
    peer                     a host's place, or ``controller``
    at_step times            a whole number
    at_phase where process   a word
    every after              ``20s`` or ``20steps``
    for                      ``5s`` (also ``ms``, ``min``, ``h``)
    amount                   ``3x``, ``10%`` or ``50ms``, as the kind has it
    all_back one_way         ``true`` or ``false``
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from danaus.app.chaos_fault import Fault
from danaus.app.chaos_kinds import FACTS, PHASES, Facts
from danaus.app.events import CONTROLLER, FaultKind
from danaus.core.errors import ConfigError

_KINDS = tuple(kind.value for kind in FACTS)
_KEYS = (
    "replica", "rank", "host", "peer", "at_step", "at_phase", "after", "every", "times",
    "all_back", "where", "process", "amount", "for", "one_way",
)  # fmt: skip
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z%]*)")
_SECONDS: Mapping[str, int | Decimal] = {
    "s": 1,
    "ms": Decimal("0.001"),
    "min": 60,
    "m": 60,
    "h": 3600,
}
_STEPS = ("step", "steps")
_TRUE, _FALSE = ("true", "yes"), ("false", "no")


def read(spec: str) -> Fault:
    """Return the fault that a text names.

    Raises:
        ConfigError: It names none; the message has the nearest legal word.
    """
    name, colon, rest = spec.strip().partition(":")
    kind = FaultKind(_near("kind of fault", name.strip().replace("-", "_"), _KINDS))
    if colon and not rest.strip():
        raise ConfigError(f"fault {spec.strip()!r}: nothing stands after the colon", "key=value")
    said: dict[str, str] = {}
    for pair in rest.split(",") if colon else ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not value:
            raise ConfigError(f"fault {kind.value!r}: {pair.strip()!r}", "it needs key=value")
        key = _near(f"key of {kind.value!r}", key.replace("-", "_"), _KEYS)
        if key in said:
            raise ConfigError(f"fault {kind.value!r}: {key} is named twice", "once")
        said[key] = value
    fields: dict[str, Any] = {}
    for key, value in said.items():
        fields |= _field(key, value, FACTS[kind])
    return Fault(kind=kind, **fields)


def write(fault: Fault) -> str:
    """Return the text of a fault, in its normal form; its ``id`` is no part of it."""
    said = {
        "replica": _whole(fault.replica),
        "rank": _whole(fault.rank),
        "host": _whole(fault.host),
        "peer": None if fault.peer is None else str(fault.peer),
        "at_step": _whole(fault.at_step),
        "at_phase": fault.at_phase,
        "after": _written(fault.after_s, "s") or _written(fault.after_steps, "steps"),
        "every": _written(fault.every_s, "s") or _written(fault.every_steps, "steps"),
        "times": _whole(fault.times),
        "all_back": "true" if fault.all_back else None,
        "where": fault.where,
        "process": fault.process,
        "amount": _written(fault.amount, (fault.facts.unit or "").removeprefix("-")),
        "for": _written(fault.for_s, "s"),
        "one_way": "true" if fault.one_way else None,
    }
    pairs = ",".join(f"{key}={value}" for key, value in said.items() if value is not None)
    return f"{fault.kind.value}:{pairs}" if pairs else fault.kind.value


def _near(what: str, word: str, legal: tuple[str, ...]) -> str:
    if word in legal:
        return word
    near = difflib.get_close_matches(word, legal, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(legal)}"
    raise ConfigError(f"no {what} is called {word!r}", to_do=hint)


def _field(key: str, value: str, facts: Facts) -> dict[str, Any]:
    """Return what one ``key=value`` says, by the names of ``Fault``'s fields."""
    value = value.lower()
    if key in ("every", "after"):
        return _time(key, value)
    if key == "for":
        return {"for_s": _measure(key, value, _SECONDS)}
    if key == "amount":
        return {key: _amount(value, facts)}
    return {key: _READERS[key](key, value, facts)}


def _place(key: str, value: str, _: Facts) -> int | None:
    if value == "random":
        return None
    for prefix in (f"{key}-", key):  # as the run calls it: ``replica-1``, ``host1``
        value = value.removeprefix(prefix)
    return _int(key, value, "a place from 0, or random")


def _peer(key: str, value: str, _: Facts) -> int | str:
    if value == CONTROLLER:
        return value
    return _int(key, value.removeprefix("host"), f"a host's place from 0, or {CONTROLLER}")


def _count(key: str, value: str, _: Facts) -> int:
    return _int(key, value, "a whole number")


def _int(key: str, digits: str, needed: str) -> int:
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 16):
        raise ConfigError(f"{key} cannot be {digits!r}", f"it needs {needed}")
    return int(digits)


def _flag(key: str, value: str, _: Facts) -> bool:
    return _near(f"value of {key}", value, _TRUE + _FALSE) in _TRUE


def _word(key: str, value: str, facts: Facts) -> str:
    legal = {"at_phase": PHASES, "where": facts.where, "process": facts.processes}[key]
    # A kind without such words says so itself.
    return _near(f"value of {key}", value.replace("-", "_"), legal) if legal else value


_READERS: dict[str, Callable[[str, str, Facts], Any]] = {
    **dict.fromkeys(("replica", "rank", "host"), _place),
    "peer": _peer,
    **dict.fromkeys(("at_step", "times"), _count),
    **dict.fromkeys(("at_phase", "where", "process"), _word),
    **dict.fromkeys(("all_back", "one_way"), _flag),
}


def _time(key: str, value: str) -> dict[str, Any]:
    found = _NUMBER.fullmatch(value)
    if found is not None and found[2] in _STEPS:
        return {f"{key}_steps": _int(key, found[1], "a whole number of steps")}
    return {f"{key}_s": _measure(key, value, _SECONDS, needed="20s or 20steps")}


def _amount(value: str, facts: Facts) -> float:
    if facts.unit is None:
        return 1.0  # the fault itself says that it takes none
    if facts.unit in ("x", "%"):
        return _measure(
            "amount", value, {facts.unit: 1}, needed=f"a number and {facts.unit}, like 3x"
        )
    return _measure("amount", value, _SECONDS)


def _measure(
    key: str, value: str, units: Mapping[str, int | Decimal], *, needed: str = "a duration, like 5s"
) -> float:
    found = _NUMBER.fullmatch(value)
    if found is None or found[2] not in units:
        raise ConfigError(f"{key} cannot be {value!r}", f"it needs {needed}")
    return float(Decimal(found[1]) * units[found[2]])


def _whole(value: int | None) -> str | None:
    return None if value is None else str(value)


def _written(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    digits = f"{Decimal(repr(value)):f}"
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}{unit}"
