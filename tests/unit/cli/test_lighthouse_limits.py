"""Whoever stands by for a run of ``danaus train`` goes by that run's limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.app.run_folder import RunFolder
from danaus.app.settings import QuorumConfig, RunConfig
from danaus.cli.arguments import Given
from danaus.cli.lighthouse import asked_for
from danaus.core.errors import ConfigError


def given(run: Path, **more: str) -> Given:
    return Given((), {"run": str(run), **more})


def test_limits_that_are_not_named_are_those_of_the_run(tmp_path: Path) -> None:
    quorum = QuorumConfig(min_replicas=2, fence_limit_s=0.5)
    config = RunConfig(replicas=5, quorum=quorum, hang_limit_s=7.0, run_dir=tmp_path / "run")
    RunFolder.create(tmp_path / "run", config).release()
    asked = asked_for(given(tmp_path / "run", min_replicas="3"))
    assert (asked.expected_replicas, asked.min_replicas) == (5, 3)
    assert (asked.fence_limit_s, asked.hang_limit_s) == (0.5, 7.0)


def test_a_folder_of_a_loop_of_ones_own_has_none(tmp_path: Path) -> None:
    assert asked_for(given(tmp_path / "mine")).expected_replicas == 0


def test_where_a_standby_listens_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"quorum\.standby"):
        QuorumConfig(standby=("somewhere",))
