"""What a job on this machine leaves behind: nothing, however often it is applied."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from danaus.actor import shutdown_context
from danaus.core.errors import ConfigError
from danaus.job import LocalJob


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of its own, whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="dn-", dir="/tmp") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)
        monkeypatch.undo()


def test_a_job_that_is_applied_again_has_new_folders_and_removes_them_too(temporary: Path) -> None:
    job, seen = LocalJob(), set()
    try:
        for _ in range(2):
            job.apply()
            (folder,) = temporary.iterdir()
            assert folder.stat().st_mode & 0o077 == 0
            seen.add(folder.name)
            job.kill()
            assert list(temporary.iterdir()) == []
    finally:
        shutdown_context()
    assert len(seen) == 2
    with pytest.raises(ConfigError, match=r"call apply\(\) first"):
        job.replace("hosts", 0)
