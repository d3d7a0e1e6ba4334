"""What a watchdog may still start, whichever watchdog started the others (P-4)."""

from __future__ import annotations

import time

import pytest

from danaus.actor.restart import Restart
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.app.watchdog import budget_of

POLICY = Restart(intensity=2, period_s=60.0)


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path / "run", RunConfig()) as folder:
        yield folder


def restarts(folder, num_tries: int, now: float | None = None) -> list[bool]:
    """Return what one watchdog, from its start to its end, is allowed."""
    budget = budget_of(folder, POLICY)
    now = time.monotonic() if now is None else now
    return [budget.decide((0,), 1, now).restart for _ in range(num_tries)]


def test_a_watchdog_that_is_started_again_begins_with_what_is_left(folder):
    assert restarts(folder, 1) == [True]
    assert restarts(folder, 2) == [True, False]
    assert restarts(folder, 1) == [False]
    assert restarts(folder, 1, time.monotonic() + 61.0) == [True]


def test_of_a_machine_that_was_started_again_what_lies_ahead_counts_as_of_now(folder):
    assert restarts(folder, 2, time.monotonic() + 1e6) == [True, True]
    assert restarts(folder, 1) == [False]
    assert restarts(folder, 1, time.monotonic() + 61.0) == [True]


@pytest.mark.parametrize("said", [b"", b"[", b"{}", b'["x"]', b"7"])
def test_a_file_that_says_nothing_allows_all(folder, said):
    (folder.control / "watchdog.json").write_bytes(said)
    assert restarts(folder, 3) == [True, True, False]
