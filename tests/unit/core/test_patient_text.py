"""Output that a full disk does not end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from danaus.core.patient_text import patient_text


@pytest.fixture
def full() -> Iterator[int]:
    fd = os.open("/dev/full", os.O_WRONLY)
    yield fd
    os.close(fd)


def test_what_does_not_fit_is_lost_and_what_comes_later_is_not(full: int) -> None:
    reader, writer = os.pipe()
    stream = patient_text(full)
    print("no room for this", file=stream)
    os.dup2(writer, full)
    print("but for this", file=stream)
    os.close(writer)
    assert os.read(reader, 100) == b"but for this\n"
    os.close(reader)


def test_other_errors_are_raised_unless_all_are_to_be_lost() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    told = patient_text(writer)
    with pytest.raises(BrokenPipeError):
        told.write("nobody reads\n")
    with pytest.raises(BrokenPipeError):
        told.close()  # it still holds the line; left to the collector it would complain later
    patient_text(writer, losing=(errno.EPIPE,)).write("nobody reads\n")
    patient_text(writer, losing=None).write("nobody reads\n")
    os.close(writer)
