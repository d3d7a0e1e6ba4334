"""Which of the errors that came together is told."""

from __future__ import annotations

import errno

import pytest

from danaus.app.worst import worst
from danaus.core.errors import ActorError, Diverged, RestartsExhausted

DIVERGED = Diverged(step=3, fingerprints={"a": "1", "b": "2"}, reason="they differ")
EXHAUSTED = RestartsExhausted(name="a", restarts=3, period_s=60.0, last="exit code 1")
FULL = OSError(errno.ENOSPC, "No space left on device")


def _remote(cause: Exception) -> ActorError:
    error = ActorError("worker", "train", str(cause), "")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (EXHAUSTED, EXHAUSTED),
        (ExceptionGroup("", [EXHAUSTED, ExceptionGroup("", [_remote(DIVERGED)])]), DIVERGED),
        (ExceptionGroup("", [FULL, EXHAUSTED]), EXHAUSTED),
        (ExceptionGroup("", [FULL]), FULL),
    ],
)
def test_the_worst_of_them_is_told(raised: Exception, told: Exception) -> None:
    assert worst(raised) is told
