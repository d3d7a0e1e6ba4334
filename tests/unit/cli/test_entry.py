"""Ctrl-C while the command is still being loaded ends it as at any later moment."""

from __future__ import annotations

import sys
from typing import NoReturn

import pytest

from danaus.cli import entry


class _Interrupted:
    """An import during which Ctrl-C is pressed."""

    def find_spec(self, name: str, path: object, target: object = None) -> NoReturn:
        raise KeyboardInterrupt


def test_ctrl_c_while_the_command_is_loaded_is_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "danaus.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Interrupted(), *sys.meta_path])

    assert entry.main() == 130


def test_the_command_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["danaus", "--help"])

    assert entry.main() == 0
    assert "danaus COMMAND --help" in capsys.readouterr().out
