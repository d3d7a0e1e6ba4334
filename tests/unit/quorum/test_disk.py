"""What the service keeps: whole, or not there (Q-1)."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path

import pytest

from danaus.quorum import disk as disk_module
from danaus.quorum.disk import QuorumDisk, watch_keeper
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
    assert sorted(os.listdir(tmp_path / "quorum")) == [
        "began", "keeper", "state.json", "state.json.spare",
    ]  # fmt: skip


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
    assert sorted(os.listdir(tmp_path)) == [
        "began", "keeper", "state.json", "state.json.spare",
    ]  # fmt: skip


def test_a_lost_file_is_known_to_have_been_there(tmp_path: Path) -> None:
    disk = QuorumDisk(tmp_path)
    assert not disk.began
    disk.save(saved())
    disk.path.unlink()
    assert QuorumDisk(tmp_path).began
    assert disk.load() is None


def test_of_two_services_of_one_folder_only_the_later_can_save(tmp_path: Path) -> None:
    older, newer = QuorumDisk(tmp_path), QuorumDisk(tmp_path)
    assert older.claim() is None
    older.save(saved(1))
    assert newer.claim() == saved(1)
    assert (older.is_kept, newer.is_kept) == (False, True)
    with pytest.raises(OSError, match="another quorum service keeps this folder"):
        older.save(saved(2))
    assert newer.load() == saved(1)
    newer.save(saved(2))
    assert QuorumDisk(tmp_path).claim() == saved(2)


def test_a_service_whose_folder_was_taken_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "_LOOK_EVERY_S", 0.01)
    older, newer = QuorumDisk(tmp_path), QuorumDisk(tmp_path)
    older.claim()
    newer.claim()
    ended: list[bool] = []
    watching = watch_keeper(older, lambda: ended.append(True))
    asyncio.run(asyncio.wait_for(watching, 5.0))
    assert ended == [True]


def test_a_folder_that_stays_locked_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "LOCK_LIMIT_S", 0.0)
    with QuorumDisk(tmp_path)._locked(), pytest.raises(BlockingIOError):
        QuorumDisk(tmp_path).claim()


# -- led by a lease ---------------------------------------------------------------------------


def test_each_term_of_a_lease_has_a_file_of_its_own(tmp_path: Path) -> None:
    first = QuorumDisk(tmp_path, term=1)
    assert first.claim() is None
    first.save(saved(1))
    second = QuorumDisk(tmp_path, term=2)
    assert second.claim() == saved(1)
    second.save(saved(2))
    assert second.load() == saved(2)
    assert not first.path.exists(), "what it held is out of date"


def test_who_was_stopped_with_the_lock_in_hand_holds_up_no_later_term(tmp_path: Path) -> None:
    QuorumDisk(tmp_path).save(saved(1))
    with QuorumDisk(tmp_path)._locked():
        later = QuorumDisk(tmp_path, term=2)
        assert later.claim() == saved(1)
        later.save(saved(2))
    assert QuorumDisk(tmp_path, term=3).claim() == saved(2)


def test_what_an_older_term_still_writes_is_not_what_counts(tmp_path: Path) -> None:
    older, newer = QuorumDisk(tmp_path, term=1), QuorumDisk(tmp_path, term=2)
    older.claim()
    newer.claim()
    with pytest.raises(OSError, match="another quorum service keeps this folder"):
        older.save(saved(5))
    newer.save(saved(9))
    older._write(saved(5))  # stopped between its look and its write, it goes on
    assert newer.load() == saved(9)
    assert QuorumDisk(tmp_path, term=3).claim() == saved(9)
    assert QuorumDisk(tmp_path).claim() == saved(9), "without a lease it counts all"


def test_a_damaged_file_of_any_term_may_be_the_newest(tmp_path: Path) -> None:
    for term in (1, 2):
        disk = QuorumDisk(tmp_path, term)
        disk.claim()
        disk.save(saved(term))
    disk.path.write_text("{")
    QuorumDisk(tmp_path, term=1)._write(saved(1))
    assert QuorumDisk(tmp_path, term=3).claim() is None


def test_a_folder_has_one_name_for_all_that_share_it(tmp_path: Path) -> None:
    name = QuorumDisk(tmp_path / "a", term=1).id
    assert name
    assert QuorumDisk(tmp_path / "a").id == name
    assert QuorumDisk(tmp_path / "b").id != name
    assert os.listdir(tmp_path / "a") == ["folder-id"]
