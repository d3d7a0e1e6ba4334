"""The public faces export what their stubs say; mypy holds the stubs to the modules behind them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import danaus

SRC = Path(danaus.__file__).parent
FACES = sorted(path.parent.name for path in SRC.glob("*/__init__.pyi"))


def test_every_face_has_a_stub() -> None:
    assert FACES == ["actor", "ft", "job", "model", "testing", "train"]


@pytest.mark.parametrize("room", FACES)
def test_a_stub_says_what_its_face_exports(room: str) -> None:
    face = importlib.import_module(f"danaus.{room}")
    stub = ast.parse((SRC / room / "__init__.pyi").read_text())
    said = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    aliases = {ast.unparse(node.target) for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert set(said) | aliases == set(face.__all__)
    assert {name: face._HOMES[name] for name in said} == said


@pytest.mark.parametrize("room", FACES)
def test_every_name_is_there(room: str) -> None:
    face = importlib.import_module(f"danaus.{room}")
    assert set(face.__all__) <= set(dir(face))
    for name in face.__all__:
        assert getattr(face, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = face.nothing
