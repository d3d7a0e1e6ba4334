"""Which command is meant, and what becomes of its errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from danaus.cli import main as command
from danaus.core.errors import (
    ConfigError,
    DependencyMissing,
    DeviceUnavailable,
    NoQuorum,
    RunFolderBusy,
)


def _main(monkeypatch: pytest.MonkeyPatch, run: Callable[[list[str]], int]) -> int:
    monkeypatch.setattr(command, "import_module", lambda name: SimpleNamespace(run=run))
    return command.main(["demo", "--x"])


def _raising(error: BaseException) -> Callable[[list[str]], int]:
    def run(arguments: list[str]) -> int:
        raise error

    return run


def test_a_command_gets_its_arguments_and_gives_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got: list[str] = []

    def run(arguments: list[str]) -> int:
        got.extend(arguments)
        return 7

    assert _main(monkeypatch, run) == 7
    assert got == ["--x"]


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a\n  b"),
        DependencyMissing(library="torch", needed_for="it", install="pip install torch"),
        DeviceUnavailable(kind="x", looked_for="y"),
        RunFolderBusy(path="p", held_by="a run", to_do="choose"),
    ],
)
def test_bad_input_is_one_line_and_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    assert _main(monkeypatch, _raising(error)) == 2

    said = capsys.readouterr().err
    assert said.startswith("danaus: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "path", "words"),
    [
        (errno.EACCES, "/runs/mine", "/runs/mine: Permission denied; name another path"),
        (errno.EISDIR, "/runs/mine", "/runs/mine: Is a directory; name another path, or move"),
        (errno.ENOTDIR, "/f/mine", "/f/mine: Not a directory; name another path"),
        (errno.ENOSPC, "/runs/mine", "/runs/mine: No space left on device; make room on the disk"),
        (errno.EMFILE, "/dev/null", "(ulimit -n)"),
    ],
)
def test_what_the_machine_refuses_is_one_line_and_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    path: str,
    words: str,
) -> None:
    assert _main(monkeypatch, _raising(OSError(number, os.strerror(number), path))) == 1

    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_failed_job_is_its_message_and_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = NoQuorum(reason="all are gone", to_do="resume")

    assert _main(monkeypatch, _raising(error)) == 1
    assert capsys.readouterr().err == "danaus: no quorum: all are gone; resume\n"


def test_failures_together_are_each_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = NoQuorum(reason="x", to_do="y")
    group = ExceptionGroup("", [one, ExceptionGroup("", [one, ConfigError("z")])])

    assert _main(monkeypatch, _raising(group)) == 2
    assert capsys.readouterr().err == "danaus: no quorum: x; y\ndanaus: z\n"


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _main(monkeypatch, _raising(KeyboardInterrupt())) == 130
    group = BaseExceptionGroup("", [KeyboardInterrupt(), ConfigError("x")])
    assert _main(monkeypatch, _raising(group)) == 130


def test_a_mistake_of_our_own_is_shown_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, _raising(ZeroDivisionError("division"))) == 1

    said = capsys.readouterr().err
    assert "ZeroDivisionError: division" in said
    assert said.endswith("please report it with the lines above\n")


def test_every_command_has_a_module() -> None:
    for each in command.COMMANDS.values():
        assert callable(command.import_module(f"danaus.cli.{each.module}").run)


def test_where_a_bench_cannot_write_is_said_before_it_measures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["bench", "recovery", "--out", "/nowhere/at/all.json"]) == 2
    assert "its folder must exist" in capsys.readouterr().err
