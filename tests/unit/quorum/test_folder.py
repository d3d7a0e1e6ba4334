"""Where a run's processes meet that share a folder."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from danaus.core.errors import ConfigError
from danaus.quorum.folder import RunFiles
from danaus.quorum.service_options import read_options
from danaus.wire.secret import Secret


def test_the_folder_and_its_secret_are_made_once(tmp_path: Path) -> None:
    files = RunFiles.prepare(tmp_path / "runs" / "mine")
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    secret = Secret.load(files.secret)
    assert RunFiles.prepare(files.folder) == files
    assert Secret.load(files.secret) == secret
    assert {path.name for path in files.folder.iterdir()} == {"secret"}


@pytest.mark.parametrize(
    ("name", "why"), [("file", "it is no folder"), ("file/below", "Not a directory")]
)
def test_what_is_no_folder_is_refused_in_words(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"folder .*{name} cannot be made: {why}; name another"):
        RunFiles.prepare(tmp_path / name)


def test_the_service_is_told_by_the_folder_alone(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    options = read_options(["--run", str(tmp_path), "--expected-replicas", "3"])
    assert options.address == files.service_address
    assert (options.folder, options.journal) == (files.quorum, files.journal)
    assert Secret.load(options.secret_path) == Secret.load(files.secret)
    other = read_options(["--run", str(tmp_path), "--address", "tcp:localhost:0"])
    assert other.address == "tcp:localhost:0"


def test_a_service_that_is_told_no_place_says_what_it_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        read_options(["--expected-replicas", "3"])
    assert "--run" in capsys.readouterr().err
