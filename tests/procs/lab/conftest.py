"""Labs for tests: skipped, with the reason, where this machine can have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.testing.lab import missing

HERE = Path(__file__).parent
REASON = missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if REASON and item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason=REASON))
