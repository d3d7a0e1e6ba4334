"""What the service keeps: whole, or not there (Q-1)."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from danaus.quorum.disk import QuorumDisk
from danaus.quorum.events import Saved
from danaus.quorum.messages import Announcement, Epoch, Learner, Outcome

from .quorum_cases import seat


def saved(n: int = 1) -> Saved:
    told = Announcement(
        epoch=Epoch(2, n),
        members=(seat("a"), seat("b")),
        learners=(Learner(seat("c"), (seat("a"),)),),
        committed_step=7,
        outcome=Outcome(7, "commit", "ä reason", Epoch(2, n - 1)),
        reason="a, b joined",
        hold=True,
        lineage_term=2,
    )
    return Saved(told, (5,))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    disk = QuorumDisk(tmp_path / "quorum")
    assert disk.load() is None
    for n in (1, 2):
        disk.save(saved(n))
        assert QuorumDisk(tmp_path / "quorum").load() == saved(n)
    assert os.stat(disk.path).st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path / "quorum")) == ["began", "state.json", "state.json.spare"]


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_a_torn_file_counts_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    disk = QuorumDisk(tmp_path)
    disk.save(saved())
    disk.path.write_bytes(disk.path.read_bytes().rstrip()[:cut])
    with caplog.at_level(logging.ERROR):
        assert disk.load() is None
    assert "counts as lost" in caplog.text


@pytest.mark.parametrize(
    "data",
    [b'{"epoch": 1}', b"\xff\xfe", b"[[[[", b'{"format":"x","checksum":"","saved":{}}', b"null"],
)
def test_a_foreign_file_counts_as_lost(tmp_path: Path, data: bytes) -> None:
    disk = QuorumDisk(tmp_path)
    disk.path.write_bytes(data)
    assert disk.load() is None


def test_an_edited_file_counts_as_lost(tmp_path: Path) -> None:
    disk = QuorumDisk(tmp_path)
    disk.save(saved())
    text = disk.path.read_text()
    assert '"committed_step": 7' in text
    disk.path.write_text(text.replace('"committed_step": 7', '"committed_step": 8'))
    assert disk.load() is None


def test_a_full_disk_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = QuorumDisk(tmp_path)
    disk.save(saved(1))

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        disk.save(saved(2))
    assert disk.load() == saved(1)
    assert sorted(os.listdir(tmp_path)) == ["began", "state.json", "state.json.spare"]


def test_a_lost_file_is_known_to_have_been_there(tmp_path: Path) -> None:
    disk = QuorumDisk(tmp_path)
    assert not disk.began
    disk.save(saved())
    disk.path.unlink()
    assert QuorumDisk(tmp_path).began
    assert disk.load() is None
