"""What users' code may raise: kept for whoever waits, or the end of the process."""

from __future__ import annotations

import pytest

from danaus.actor.attempt import Attempt, exits


class Odd(BaseException):
    """No ``Exception``."""


@pytest.mark.parametrize("raised", [ValueError("words"), Odd("words"), GeneratorExit("words")])
def test_what_is_raised_is_kept(raised):
    with Attempt() as attempt:
        raise raised
    assert isinstance(attempt.error, Exception)
    assert "words" in str(attempt.error)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_process_goes_on_its_way(ending):
    attempt = Attempt()
    with pytest.raises(ending), attempt:
        raise ending
    assert attempt.error is None


@pytest.mark.parametrize(
    ("raised", "code"),
    [(SystemExit(), 0), (SystemExit(3), 3), (SystemExit("words"), 1), (KeyboardInterrupt(), 130)],
)
def test_an_end_has_the_exit_code_of_a_shell(raised, code):
    codes = []
    with exits(codes.append):
        raise raised
    assert codes == [code]
