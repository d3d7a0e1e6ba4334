"""What an agent lays down for its workers."""

from __future__ import annotations

import errno
import os

import pytest

from danaus.actor.agent_files import new_block


def test_a_position_lies_in_memory_when_the_disk_is_full_if_there_is_such_memory(
    tmp_path, monkeypatch
):
    path = str(tmp_path / "position")
    block, where = new_block(path)
    assert where == path
    block.close()

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    block, where = new_block(path)
    assert where == block.path != ""
    block.close()
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(OSError, match="No space left"):
        new_block(path)
