"""What a run says that cannot begin, or whose folder is taken away while it goes on."""

from __future__ import annotations

import shutil

import pytest
from tests.procs.cli.terminal import TINY, Command, text, told

from danaus.actor import shutdown_context
from danaus.app.experiment import RunOrder
from danaus.app.launch import Launched
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.core.errors import ConfigError, RunFolderBusy

LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def no_context():
    yield
    shutdown_context()


def test_a_controller_that_cannot_be_made_says_so_to_who_waits_for_the_run(tmp_path):
    """And ends nothing else: the fault hook would end this program."""
    with RunFolder.create(tmp_path / "run", RunConfig()):
        launched = Launched("run", RunOrder(tmp_path / "run", RunConfig()))
        with pytest.raises(RunFolderBusy):
            launched.result()
        launched.stop("the test is over")
    (tmp_path / "run" / "config.toml").unlink()
    with pytest.raises(ConfigError, match="is not a run folder"):
        Launched("again", RunOrder(tmp_path / "run", RunConfig())).result()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_run_whose_folder_is_removed_ends_with_one_clear_error(tmp_path):
    text(tmp_path)
    run = tmp_path / "run"
    with Command(tmp_path, "train", "debug", "--run-dir=run", "--steps=100000", *TINY) as command:
        command.wait_until(lambda: told(run, "quorum_announced") or None, limit_s=120.0)
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(run, ignore_errors=True)  # what was written in between
        assert command.wait(limit_s=60.0) == 2
    assert "was removed while its run went on" in command.text
    assert "Traceback" not in command.text
