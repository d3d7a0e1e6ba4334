"""The face: every name is there, and type checkers see the same names."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest


@pytest.mark.parametrize("room", ["actor", "job"])
def test_every_name_of_a_face_is_there_and_typed(room):
    face = importlib.import_module(f"danaus.{room}")
    assert all(getattr(face, name) is not None for name in face.__all__)
    stub = Path(face.__file__).with_suffix(".pyi").read_text()
    assert sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE)) == sorted(face.__all__)
    assert set(dir(face)) >= set(face.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = face.nothing
