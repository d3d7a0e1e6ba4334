"""T-7: lines survive deaths and full disks, and are read back as they were written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.errors import LedgerDamaged
from danaus.ft.ledger import (
    Committed,
    Ledger,
    Line,
    Opened,
    RolledBack,
    pack_samples,
    read_ledger,
    unpack_samples,
)
from danaus.quorum.messages import Epoch, MemberId


def opened(incarnation: int = 1) -> Opened:
    return Opened(at=1.0, member=MemberId("r0", 0, incarnation))


def committed(step: int) -> Committed:
    return Committed(
        at=float(step),
        step=step,
        epoch=Epoch(1, 1),
        members=(MemberId("r0", 0, 1),),
        leaves={"r0": (0, 1)},
        samples=(str(step),),
        num_tokens=16,
        loss=0.1 + 0.2,
        grad_norm=1 / 3,
        fingerprint="f",
    )


@given(st.lists(st.integers(0, 200), max_size=40))
def test_samples_are_packed_and_unpacked(ids: list[int]) -> None:
    assert unpack_samples(pack_samples(ids)) == sorted(ids)


def test_samples_that_follow_each_other_become_a_range() -> None:
    assert pack_samples([9, 3, 5, 4]) == "3-5,9"


def test_lines_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "r0-0.jsonl"
    lines: list[Line] = [opened(), committed(1), RolledBack(at=2.0, step=0, term=2, reason="all")]
    with Ledger(path, opened()) as ledger:
        assert all(ledger.append(line) for line in lines[1:])
        assert ledger.sync()
    file = read_ledger(path)
    assert list(file.lines) == lines
    assert (file.writer, file.rank, file.num_torn, file.damaged) == ("r0/0", 0, 0, ())
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", [2, 20, 60])
def test_a_torn_tail_is_dropped_and_the_next_incarnation_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r0-0.jsonl"
    with Ledger(path, opened()) as ledger:
        ledger.append(committed(1))
        ledger.append(committed(2))
    os.truncate(path, path.stat().st_size - cut)
    assert [getattr(line, "step", None) for line in read_ledger(path).lines] == [None, 1]
    with Ledger(path, opened(2)) as ledger:
        ledger.append(committed(3))
    file = read_ledger(path)
    assert [line.step for line in file.lines if isinstance(line, Committed)] == [1, 3]
    assert (file.num_torn, file.damaged) == (1, ())


def test_a_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "r0-0.jsonl"
    with Ledger(path, opened()) as ledger:
        ledger.append(committed(1))
    os.truncate(path, path.stat().st_size - 1)
    assert len(read_ledger(path).lines) == 2
    Ledger(path, opened(2)).close()
    assert (len(read_ledger(path).lines), read_ledger(path).num_torn) == (3, 0)


def test_damage_within_an_incarnation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r0-0.jsonl"
    with Ledger(path, opened()) as ledger:
        for step in (1, 2, 3):
            ledger.append(committed(step))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b'"step":2')] ^= 1
    path.write_bytes(raw)
    assert read_ledger(path).damaged == (3,)


def test_a_full_disk_only_delays_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r0-0.jsonl"
    room = [200]
    write = os.write

    def limited(file: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(file, bytes(data)[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", limited)
    with Ledger(path, opened()) as ledger:
        assert not ledger.append(committed(1))  # half of it is on the disk
        assert not ledger.append(committed(2))
        assert "No space" in ledger.problem
        assert ledger.pending_bytes > 0
        room[0] = 10_000
        assert ledger.append(committed(3))
        assert ledger.pending_bytes == 0
    steps = [line.step for line in read_ledger(path).lines if isinstance(line, Committed)]
    assert steps == [1, 2, 3]


def test_a_ledger_that_cannot_even_be_opened_waits(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("a file where the folder should be")
    path = tmp_path / "ledger" / "r0-0.jsonl"
    with Ledger(path, opened()) as ledger:
        assert not ledger.append(committed(1))
        (tmp_path / "ledger").unlink()
        assert ledger.append(committed(2))
    assert len(read_ledger(path).lines) == 3


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r0-0.jsonl"
    Ledger(path, opened()).close()
    Ledger(path, Opened(at=1.0, member=MemberId("r1", 0, 1))).close()
    with pytest.raises(LedgerDamaged, match="r0/0 and r1/0"):
        read_ledger(path)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LedgerDamaged, match="cannot be read"):
        read_ledger(tmp_path / "r0-0.jsonl")


@pytest.mark.parametrize(
    ("raw", "num_torn", "damaged"),
    [
        (b"\xff\x00\n\xfe", 0, (1, 2)),
        (b'{"li', 1, ()),
        (b'{"line":"op\0\0\0', 1, ()),
        (b"\0" * 512, 1, ()),
        (b'"line":"opened"}', 0, (1,)),
    ],
)
def test_what_does_not_begin_as_lines_do_was_not_torn_by_a_death(
    tmp_path: Path, raw: bytes, num_torn: int, damaged: tuple[int, ...]
) -> None:
    path = tmp_path / "r0-0.jsonl"
    path.write_bytes(raw)
    file = read_ledger(path)
    assert (file.lines, file.num_torn, file.damaged) == ((), num_torn, damaged)
