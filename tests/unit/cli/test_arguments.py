"""From a command line to typed settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from danaus.cli.arguments import Given, build, read, show_help, wants_help
from danaus.core.errors import ConfigError


@dataclass(frozen=True)
class _Step:
    num_steps: int = 3
    fast: bool = False


@dataclass(frozen=True)
class _Command:
    """A command.

    Args:
        run: A folder.
        lr: A rate.
        heal: Whether to heal.
        rows: Which.
        step: The step.
    """

    run: Path
    lr: float = 0.1
    heal: bool = True
    rows: tuple[str, ...] = ("x", "y")
    step: _Step = field(default_factory=_Step)


def _built(*words: str) -> _Command:
    return build(_Command, read(words, _Command, "try"), ("run",), "try")


def test_every_spelling_of_an_option() -> None:
    expected = _Command(Path("a"), lr=0.5, heal=False, step=_Step(7, fast=True))

    assert _built("a", "--lr", "0.5", "--no-heal", "--step.num_steps=7", "--step.fast") == expected
    assert (
        _built("--lr=0.5", "a", "--heal=false", "--steps", "7", "--step.fast", "true") == expected
    )
    assert (
        _built("--lr", "0.5", "--no-heal", "--step.num-steps", "7", "--step.fast", "a") == expected
    )
    assert _built("a", "--rows", "u,v").rows == ("u", "v")
    assert _built("--", "-x") == _Command(Path("-x"))
    assert _built("a", "--step.no-fast", "--lr", "-0.5") == _Command(Path("a"), lr=-0.5)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a", "--lrr", "1"), "unknown option --lrr; did you mean --lr?"),
        (("a", "--num_steps", "1"), "unknown option --num_steps; did you mean --step.num-steps?"),
        (
            ("a", "--step.num_stesp=1"),
            "unknown option --step.num_stesp; did you mean --step.num-steps?",
        ),
        (("a", "--no-lr"), "unknown option --no-lr; did you mean --lr?"),
        (("a", "--zzz"), "unknown option --zzz; danaus try --help lists them"),
        (("a", "-r"), "unknown option -r; did you mean --lr?"),
        (("a", "--lr"), "--lr needs a value"),
        (("a", "--lr", "--heal"), "--lr needs a value"),
        (("a", "--no-heal=1"), "--no-heal takes no value; write --heal=1"),
        (("a", "--lr", "fast"), "setting 'lr' cannot be 'fast': it needs a number"),
        (("a", "--heal=maybe"), "setting 'heal' cannot be 'maybe': it needs true or false"),
        ((), "RUN is missing: danaus try takes RUN"),
        (
            ("a", "--rows", "u", "v"),
            (
                "'v' is one argument too many: danaus try takes RUN; "
                "several values of an option go into one word: u,v"
            ),
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _built(*words)

    assert str(refused.value) == says


def test_a_later_value_wins() -> None:
    assert read(["--lr", "1", "--lr", "2"], _Command, "try") == Given((), {"lr": "2"})


def test_help_is_asked_for_by_name_only() -> None:
    assert wants_help(["a", "--help"])
    assert wants_help(["-h"])
    assert not wants_help(["--", "-h"])


def test_help_names_types_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_help(_Command, "try") == 0

    shown = capsys.readouterr().out
    assert "danaus try" in shown
    assert "--lr FLOAT" in shown
    assert "--heal, --no-heal" in shown
    assert "A rate. (default: 0.1)" in shown


def test_help_shows_several_values_as_they_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_help(_Command, "try") == 0

    assert "--rows STR,..." in (said := capsys.readouterr().out)
    assert "(default: x,y)" in said
