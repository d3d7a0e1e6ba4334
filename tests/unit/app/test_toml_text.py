"""Settings written as TOML are read back the same."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from danaus.app.toml_text import toml_text

_PLAIN = (
    st.text()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.lists(st.integers(0, 9) | st.text(max_size=3), max_size=3)
)
_SETTINGS = st.recursive(
    st.dictionaries(st.text(max_size=5), _PLAIN, max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=5), _PLAIN | inner, max_size=3),
    max_leaves=6,
)


@given(_SETTINGS)
def test_what_is_written_is_read_back(settings: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(settings)) == settings


def test_a_value_that_is_not_set_is_still_seen() -> None:
    text = toml_text({"a": None, "b": {"c": Path("/x"), "d": (1, 2.0)}})

    assert "# a is not set" in text
    assert tomllib.loads(text) == {"b": {"c": "/x", "d": [1, 2.0]}}
