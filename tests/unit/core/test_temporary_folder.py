"""A temporary folder does not outlast its program, however that ends."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from danaus.core.temporary_folder import TemporaryFolder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _killed(folder: TemporaryFolder) -> None:
    """Let go of what the kernel would close for a program that is killed."""
    os.close(folder._lock_fd)


def test_it_is_private_and_goes_with_all_that_is_in_it(temporary: Path) -> None:
    folder = TemporaryFolder()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.path / "control").mkdir()
    folder.remove()
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_program_left_is_removed_by_the_next() -> None:
    left, held = TemporaryFolder(), TemporaryFolder()
    (left.path / "secret").touch()
    _killed(left)
    assert left.path.exists()

    TemporaryFolder().remove()

    assert not left.path.exists()
    assert held.path.exists()
    held.remove()


def test_what_others_work_in_or_somebody_else_made_is_left_alone(temporary: Path) -> None:
    mine = TemporaryFolder(outlives=True)
    (temporary / "danaus-notes").mkdir()
    (temporary / "danaus-file").touch()
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "held").touch()
    (temporary / "danaus-link").symlink_to(elsewhere)

    TemporaryFolder().remove()

    assert {path.name for path in temporary.iterdir()} == {
        mine.path.name,
        "danaus-notes",
        "danaus-file",
        "danaus-link",
        "elsewhere",
    }
    assert (elsewhere / "held").exists()
