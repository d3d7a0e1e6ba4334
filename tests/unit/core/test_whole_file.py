"""A file that is replaced whole, whatever its writer or its disk do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from danaus.core.whole_file import WholeFile


@pytest.fixture
def file(tmp_path: Path) -> WholeFile:
    return WholeFile(tmp_path / "state.json")


def names(file: WholeFile) -> list[str]:
    return sorted(os.listdir(file.path.parent))


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_is_written_is_read_and_nothing_of_what_was_before(file: WholeFile) -> None:
    for data in (b'{"a": 1}', b'{"longer": "than before"}', b"{}"):
        file.write(data)
        assert file.read() == data
        assert WholeFile(file.path).read() == data
    assert names(file) == ["state.json", "state.json.spare"]


def test_the_second_write_needs_no_room(file: WholeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write(b"first")
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    taken = {os.stat(file.path.parent / name).st_ino for name in names(file)}
    for number in range(5):
        file.write(b"number %d" % number)
        assert file.read() == b"number %d" % number
        assert {os.stat(file.path.parent / name).st_ino for name in names(file)} == taken


def test_one_that_grows_beyond_its_room_needs_more(
    file: WholeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(b"small")
    large = b"x" * 100_000
    file.write(large)
    assert file.read() == large
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(OSError, match="No space left"):
        file.write(b"y" * 200_000)
    assert file.read() == large


def test_a_failed_write_leaves_what_was_there(
    file: WholeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(b"first")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_room)
        with pytest.raises(OSError, match="No space left"):
            file.write(b"second")
    assert file.read() == b"first"
    file.write(b"third")
    assert file.read() == b"third"


@pytest.mark.parametrize("cut", ["link", "replace", "second replace"])
def test_a_writer_that_dies_in_between_leaves_old_or_new(
    file: WholeFile, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    file.write(b"old")
    calls: list[str] = []

    class Died(BaseException):
        pass

    def dying(name: str, what: object) -> object:
        def call(*args: object) -> None:
            calls.append(name)
            nth = f"second {name}" if calls.count(name) == 2 else name
            if cut == nth:
                raise Died
            what(*args)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patched:
        for name in ("link", "replace"):
            patched.setattr(os, name, dying(name, getattr(os, name)))
        with pytest.raises(Died):
            file.write(b"new")
    assert file.read() == (b"new" if cut == "second replace" else b"old")
    after = WholeFile(file.path)
    for data in (b"later", b"still later"):
        after.write(data)
        assert after.read() == data
    assert names(file) == ["state.json", "state.json.spare"]


def test_a_file_system_without_links_will_do(
    file: WholeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_room)
    for data in (b"one", b"two", b"three"):
        file.write(data)
        assert file.read() == data
