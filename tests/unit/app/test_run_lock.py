"""A run folder has one living controller, which its lock names (P-4)."""

from __future__ import annotations

import os

import pytest

from danaus.app.run_lock import RunLock, found_holder
from danaus.core.errors import RunFolderBusy


@pytest.fixture
def lock(tmp_path):
    (tmp_path / "control").mkdir()
    lock = RunLock(tmp_path)
    yield lock
    lock.release()


def test_who_holds_it_is_known_and_found(lock, tmp_path):
    assert lock.is_free
    assert lock.holder() == (0, 0)
    assert found_holder(tmp_path) is None
    lock.hold()
    lock.hold()
    assert not RunLock(tmp_path).is_free
    assert lock.holder()[0] == os.getpid()
    holder = found_holder(tmp_path)
    assert holder.pid == os.getpid()
    assert not holder.has_ended
    holder.close()


def test_another_is_refused_until_it_is_let_go(lock, tmp_path):
    lock.hold()
    with pytest.raises(RunFolderBusy, match=f"pid {os.getpid()}"):
        RunLock(tmp_path).hold()
    lock.release()
    second = RunLock(tmp_path)
    second.hold()
    second.release()


def test_a_pid_that_is_anothers_by_now_is_nobody(lock, tmp_path):
    (tmp_path / "control" / "lock").write_text(f"{os.getpid()} 1\n")
    assert found_holder(tmp_path) is None
