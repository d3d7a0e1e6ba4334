"""Positions that another process reads at any moment (P-3)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core import proc_root
from danaus.core.errors import ConfigError
from danaus.wire.position import Phase, Position, PositionBlock


def test_a_reader_sees_what_was_written_last(tmp_path: Path) -> None:
    worker = PositionBlock.create(tmp_path / "p")
    agent = PositionBlock.open(tmp_path / "p")
    assert agent.read() == Position(0, Phase.START, 0, 1)
    worker.write(7, Phase.REDUCE, 3)
    assert agent.read() == Position(7, Phase.REDUCE, 3, 2)
    worker.write(7, Phase.REDUCE, 4)
    assert agent.read() == worker.read() == Position(7, Phase.REDUCE, 4, 3)
    worker.close()
    agent.close()
    assert (tmp_path / "p").stat().st_mode & 0o777 == 0o600


def test_who_waits_for_siblings_has_not_moved_and_says_so_until_it_is_over(tmp_path: Path) -> None:
    worker = PositionBlock.create(tmp_path / "p")
    agent = PositionBlock.open(tmp_path / "p")
    worker.write(7, Phase.COMPUTE, 3)
    worker.wait_for_siblings(True)
    assert agent.read() == Position(7, Phase.COMPUTE, 3, 2, for_siblings=True)
    worker.write(7, Phase.COMPUTE, 4)
    assert agent.read() == Position(7, Phase.COMPUTE, 4, 3, for_siblings=True)
    again = PositionBlock.open(tmp_path / "p")
    again.wait_for_siblings(False)
    assert agent.read() == Position(7, Phase.COMPUTE, 4, 3)
    for block in (worker, agent, again):
        block.close()


def test_a_full_disk_is_an_error_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no signal later, when it is first touched."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(OSError, match="No space"):
        PositionBlock.create(tmp_path / "p")


def test_memory_without_a_file_needs_a_system_that_has_paths_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = PositionBlock.create_in_memory()
    agent = PositionBlock.open(worker.path)
    worker.write(7, Phase.REDUCE, 3)
    assert agent.read() == Position(7, Phase.REDUCE, 3, 2)
    for block in (worker, agent):
        block.close()
    with monkeypatch.context() as without:
        without.delattr(os, "memfd_create")
        with pytest.raises(OSError, match="no memory without a name"):
            PositionBlock.create_in_memory()
    monkeypatch.setattr(proc_root, "ROOT", tmp_path)
    with pytest.raises(OSError, match="no paths to memory"):
        PositionBlock.create_in_memory()


def test_creating_again_resets_and_opening_goes_on(tmp_path: Path) -> None:
    first = PositionBlock.create(tmp_path / "p")
    first.write(5, Phase.VOTE, 1)
    second = PositionBlock.open(tmp_path / "p")
    second.write(6, Phase.APPLY, 0)
    assert first.read() == Position(6, Phase.APPLY, 0, 3)
    third = PositionBlock.create(tmp_path / "p")
    assert first.read() == Position(0, Phase.START, 0, 1)
    for block in (first, second, third):
        block.close()


@given(st.integers(0, 130), st.integers(0, 255), st.integers(1, 5))
def test_a_torn_write_leaves_an_older_position(where: int, value: int, writes: int) -> None:
    path = Path(f"/dev/shm/danaus-test-{os.getpid()}")
    worker = PositionBlock.create(path)
    try:
        for n in range(writes):
            worker.write(n, Phase.COMPUTE, n)
        agent = PositionBlock.open(path)
        if where < 128:
            agent._memory[where] = value
        got = agent.read()
        assert got == Position(writes - 1, Phase.COMPUTE, writes - 1, writes + 1) or (
            got.moves == writes
        )
        agent.close()
    finally:
        worker.close()
        path.unlink()


def test_what_is_no_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        PositionBlock.open(tmp_path / "missing")
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(ConfigError, match="short"):
        PositionBlock.open(tmp_path / "short")


def test_phases_are_in_the_order_of_a_step() -> None:
    assert [phase.name for phase in sorted(Phase) if phase.waits] == ["JOIN", "LEARN", "HOLD"]
    assert Phase.COMPUTE < Phase.REDUCE < Phase.VOTE < Phase.APPLY
