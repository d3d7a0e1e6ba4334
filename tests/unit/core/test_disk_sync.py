"""What is asked of a disk before it counts as written."""

import errno
import fcntl
import os

import pytest

from danaus.core.disk_sync import sync

FULL = 51  # macOS's number


@pytest.fixture
def asked(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(("fsync", fd)))
    return calls


def test_fsync_will_do_where_it_means_the_disk(asked):
    sync(7)
    assert asked == [("fsync", 7)]


@pytest.fixture
def full(asked, monkeypatch):
    """Answer the question that macOS knows; return what is answered."""
    answers = []

    def answer(fd, command):
        asked.append((command, fd))
        if answers:
            raise OSError(answers[0], os.strerror(answers[0]))

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", answer)
    return answers


def test_the_disk_itself_is_asked_where_it_does_not(asked, full):
    sync(7)
    assert asked == [(FULL, 7)]


def test_a_file_system_without_a_disk_does_what_it_can(asked, full):
    full.append(errno.ENOTSUP)
    sync(7)
    assert asked == [(FULL, 7), ("fsync", 7)]


def test_a_disk_that_fails_is_not_asked_until_it_forgets(asked, full):
    full.append(errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        sync(7)
    assert asked == [(FULL, 7)]
