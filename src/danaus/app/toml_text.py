"""Settings as TOML text: the half that the standard library's ``tomllib`` leaves out.

Owns ``toml_text``; reading is ``tomllib``'s.  A value of ``None`` has no spelling in TOML and is
written as a comment, so that a reader of the file still sees the setting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(settings: Mapping[str, Any]) -> str:
    """Return ``settings`` as a TOML document that ``tomllib`` reads back.

    Args:
        settings: Nested mappings of str, bool, int, float, Path, None and sequences of these.
    """
    lines = _table(settings, ())
    return "\n".join(lines).strip("\n") + "\n"


def _table(settings: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Return a table's lines: its plain values first, as TOML needs them, then its tables."""
    lines = []
    plain = {k: v for k, v in settings.items() if not isinstance(v, Mapping)}
    if path and (plain or not settings):
        lines += ["", f"[{'.'.join(_key(p) for p in path)}]"]
    for key, value in plain.items():
        spelled = f"{_key(key)} = {_value(value)}"
        lines.append(f"# {_key(key)} is not set" if value is None else spelled)
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += _table(value, (*path, key))
    return lines


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str | Path):
        return _string(str(value))
    if isinstance(value, Sequence):
        return f"[{', '.join(_value(v) for v in value)}]"
    return "" if value is None else _string(str(value))


def _float(value: float) -> str:
    text = repr(value)
    # TOML wants a digit on both sides of the point, or an exponent; ``nan`` and ``inf`` it knows.
    return text if any(c in text for c in ".ein") else f"{text}.0"


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but for the character 127, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
