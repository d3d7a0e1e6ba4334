"""What a campaign refuses before it begins, and that it leaves no disk behind."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from danaus.app.bench_campaign import _command, run_campaign
from danaus.app.campaign_disk import lacking, small_disk
from danaus.app.campaign_mix import DISK
from danaus.app.settings import CampaignConfig
from danaus.core.errors import ConfigError, RunFolderBusy

needs_disk = pytest.mark.skipif(DISK in lacking(), reason="needs root, to mount a small disk")


def campaign(**settings: object) -> None:
    run_campaign(CampaignConfig(**settings), console=Console(file=io.StringIO()))  # type: ignore[arg-type]


def test_a_folder_that_holds_a_campaign_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    with pytest.raises(RunFolderBusy, match="another folder"):
        campaign(run_dir=tmp_path)


def test_a_record_of_nothing_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text('{"record":1,"seed":0,"faults":[],"hosts":[0,1],"ranks":1}\n')
    with pytest.raises(ConfigError, match="nothing struck in record"):
        campaign(run_dir=tmp_path / "campaign", replay=record)


def test_the_command_that_is_named_makes_the_same_plan_again() -> None:
    assert _command(CampaignConfig(faults=9, seed=4)).endswith("--faults 9 --seed 4 --replicas 3")
    assert "--every-steps 7" in _command(CampaignConfig(every_steps=7))


@needs_disk
def test_a_disk_that_a_killed_campaign_left_is_named(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with (
        pytest.raises(ConfigError, match="a campaign that was killed has left its disk; umount"),
        small_disk(tmp_path, "run", wanted=True),
    ):
        pass


@needs_disk
def test_the_disk_is_taken_down_even_if_its_files_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    with (
        pytest.raises(OSError, match="File exists"),
        small_disk(tmp_path, "run", wanted=True) as run,
    ):
        run.mkdir()
    assert not (tmp_path / "disk").exists()
