"""A run folder is private, belongs to one run and one controller, and only counts up."""

from __future__ import annotations

import datetime as dt
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from danaus.app.run_folder import RunFolder, default_run_path
from danaus.core.errors import ConfigError, RunFolderBusy
from danaus.wire.secret import Authority


@dataclass(frozen=True)
class _Data:
    path: str = "/text"


@dataclass(frozen=True)
class _Settings:
    replicas: int = 3
    data: _Data = field(default_factory=_Data)


CONFIG = _Settings()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_private_and_holds_its_settings(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "runs" / "a", CONFIG) as folder:
        assert _mode(folder.path) == 0o700
        assert _mode(folder.secret_path) == 0o600
        assert folder.config() == {"replicas": 3, "data": {"path": "/text"}}
        assert folder.secret().__class__.__name__ == "Secret"


def test_a_run_is_of_the_authority_that_it_is_told(tmp_path: Path) -> None:
    ours = Authority("/tls/certificate", "/tls/key", "/tls/authority")
    with RunFolder.create(tmp_path / "a", CONFIG, ours) as folder:
        assert folder.secret().authority == ours


def test_a_folder_that_holds_another_run_is_refused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "a", CONFIG).release()

    with pytest.raises(RunFolderBusy, match="already holds a run; go on with it by --resume"):
        RunFolder.create(tmp_path / "a", CONFIG)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(ConfigError, match=r"is not empty: it holds thesis\.tex"):
        RunFolder.create(tmp_path, CONFIG)
    with pytest.raises(ConfigError, match="is a file"):
        RunFolder.create(tmp_path / "thesis.tex", CONFIG)


def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="cannot be made: Not a directory"):
        RunFolder.create(tmp_path / "file" / "a", CONFIG)


def test_an_interrupted_creation_is_no_run(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "a", CONFIG).release()
    (tmp_path / "a" / "config.toml").unlink()

    with pytest.raises(ConfigError, match=r"is not a run folder: it has no config\.toml"):
        RunFolder.open(tmp_path / "a")
    with RunFolder.create(tmp_path / "a", CONFIG) as folder:
        assert folder.config() == {"replicas": 3, "data": {"path": "/text"}}


def test_two_controllers_cannot_share_a_folder(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", CONFIG):
        second = RunFolder.open(tmp_path / "a")
        with pytest.raises(RunFolderBusy, match=rf"is alive \(pid {os.getpid()}\)"):
            second.hold()

    second.hold()
    second.release()


def test_only_a_holder_writes(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "a", CONFIG).release()

    with pytest.raises(ConfigError, match="was opened to be read"):
        RunFolder.open(tmp_path / "a").next_incarnation("replica-0")


def test_a_missing_folder_names_the_runs_that_are_there(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "runs" / "a", CONFIG).release()

    with pytest.raises(ConfigError, match=r"does not exist; runs here: .*runs/a$"):
        RunFolder.open(tmp_path / "runs" / "b")


def test_incarnations_only_grow_whoever_holds_the_folder(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", CONFIG) as first:
        assert [first.next_incarnation("replica-0") for _ in range(3)] == [0, 1, 2]
        assert first.next_incarnation("replica-1") == 0

    second = RunFolder.open(tmp_path / "a")
    second.hold()
    assert second.next_incarnation("replica-0") == 3
    assert second.incarnations() == {"replica-0": 3, "replica-1": 0}
    second.release()


def test_addresses_are_added_by_name(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", CONFIG) as folder:
        folder.save_addresses(service="unix:/a")
        folder.save_addresses(agents={"host-0": "unix:/b"})

        assert folder.addresses() == {"service": "unix:/a", "agents": {"host-0": "unix:/b"}}
        assert not list(folder.control.glob(".*"))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", CONFIG) as folder:
        (folder.control / "incarnations.json").write_text("[1]")
        with pytest.raises(ConfigError, match=r"incarnations\.json holds no JSON object"):
            folder.incarnations()
        (folder.control / "incarnations.json").write_text("{")
        with pytest.raises(ConfigError, match=r"incarnations\.json cannot be read"):
            folder.incarnations()
        folder.config_path.write_text("a = ")
        with pytest.raises(ConfigError, match=r"config\.toml cannot be read"):
            folder.config()


def test_sockets_lie_in_the_folder_while_its_path_is_short(tmp_path: Path) -> None:
    short = Path(os.path.relpath(tmp_path))
    folder = RunFolder(short)
    if len(str(short)) < 30:
        folder.control.mkdir()
        assert folder.sockets() == short / "control" / "sockets"


def test_sockets_move_where_the_path_is_too_long_and_go_with_the_controller(
    tmp_path: Path,
) -> None:
    with RunFolder.create(tmp_path / ("x" * 100), CONFIG) as folder:
        sockets = folder.sockets()

        assert len(str(sockets)) < 60
        assert _mode(sockets) == 0o700
        assert folder.addresses()["sockets"] == str(sockets)
        assert folder.sockets() == sockets
    assert not sockets.exists()


def test_sockets_that_a_killed_controller_left_go_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 100)
    first = RunFolder.create(path, CONFIG)
    left = first.sockets(outlive=True)
    first.release(keep_sockets=True)
    assert left.is_dir()
    with RunFolder.open(path) as second:
        second.hold()
        assert second.sockets() != left
        assert not left.exists()


def test_a_folder_of_sockets_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    open_to_all = tmp_path / "s"
    open_to_all.mkdir(mode=0o755)
    with RunFolder.create(tmp_path / ("x" * 100), CONFIG) as folder:
        folder.save_addresses(sockets=str(open_to_all))

        assert folder.sockets() != open_to_all
    assert open_to_all.exists()


def test_the_default_path_is_the_date_and_the_name(tmp_path: Path) -> None:
    now = dt.datetime(2026, 1, 14, 9, 30, 12, tzinfo=dt.UTC)
    first = default_run_path("demo", now, parent=tmp_path)
    first.mkdir()

    assert first.name == "20260114-093012-demo"
    assert default_run_path("demo", now, parent=tmp_path).name == "20260114-093012-demo-2"


def test_paths_of_what_others_write(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", CONFIG) as folder:
        for rank in (1, 0):
            folder.ledger_path("replica-0", rank).write_text("")
        found = [p.name for p in folder.ledger_paths()]

        assert found == ["replica-0-0.jsonl", "replica-0-1.jsonl"]
        assert folder.log_path("host-0/replica-0/1#2").name == "host-0-replica-0-1#2.log"
        assert json.loads("{}") == folder.addresses()
