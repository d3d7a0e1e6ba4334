"""Whoever builds a lab may die at any moment: nothing runs on, and ``down`` clears the rest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.procs.lab.lab_parts import left_behind, wait

import danaus
from danaus.app.lab import Lab as StandingLab
from danaus.app.lab_folder import LABS
from danaus.app.lab_init import start_time
from danaus.app.lab_plan import LabPlan
from danaus.core.errors import ConfigError
from danaus.testing.lab import Lab

SOURCE = Path(danaus.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "100"}
BUILDER = Path(__file__).with_name("dying_builder.py")


def _die(folder: Path, at: int) -> None:
    done = subprocess.run(
        [sys.executable, str(BUILDER), str(folder), str(at)],
        env=ENVIRONMENT, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("at", [1, 2, 3, 4, 7])
def test_up_killed_in_the_middle_is_cleared_by_down(tmp_path, at):
    _die(tmp_path, at)
    assert (tmp_path / "half" / "state.json").exists()
    lab = StandingLab("half", labs=tmp_path)
    assert lab.down()
    assert left_behind(tmp_path, "half") == []
    assert not lab.down()


def test_how_half_a_lab_is_is_said_with_what_to_do(tmp_path):
    (tmp_path / "half").mkdir()
    lab = StandingLab("half", labs=tmp_path)
    with pytest.raises(
        ConfigError, match="is half built, or half taken down; danaus lab down --name half"
    ):
        lab.status()
    _die(tmp_path, 0)
    wait(lambda: lab.pid("switch") is None, "its switch to end")
    (problem,) = lab.status().problems
    assert "its switch is gone: danaus lab down --name half, then up" in problem
    assert lab.down()


def test_up_killed_in_the_middle_is_built_anew_by_up(tmp_path):
    _die(tmp_path, 4)
    lab = StandingLab("half", labs=tmp_path, owned=True)
    assert lab.up(LabPlan("half", num_hosts=1))
    assert lab.pid("host1") is not None
    assert lab.down()


def test_hosts_whose_agents_run_end_with_who_was_not_done_building(tmp_path):
    _die(tmp_path, 0)
    lab = StandingLab("half", labs=tmp_path)
    wait(lambda: lab.pid("host1") is None and lab.pid("host2") is None, "its hosts to end")
    assert lab.down()
    assert left_behind(tmp_path, "half") == []


def test_the_hosts_of_a_test_end_with_the_test(tmp_path):
    script = (
        "import os, pathlib, signal, sys\n"
        "from danaus.testing.lab import Lab\n"
        "lab = Lab(hosts=1, folder=pathlib.Path(sys.argv[1])).__enter__()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=ENVIRONMENT, timeout=50, check=False
    )
    (folder,) = tmp_path.iterdir()
    lab = StandingLab(folder.name, labs=tmp_path)
    wait(lambda: lab.pid("host1") is None and lab.pid("switch") is None, "its hosts to end")
    assert lab.down()
    assert left_behind(tmp_path, folder.name) == []


def test_a_lab_of_before_the_machine_started_again_is_cleared_and_no_stranger_is_hurt(tmp_path):
    with Lab(hosts=1, folder=tmp_path / "labs") as lab:
        shutil.copytree(tmp_path / "labs" / lab.name, tmp_path / "kept")
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            (tmp_path / "kept").rename(tmp_path / "labs" / lab.name)
            for node in ("switch", "host1"):
                now = f"{stranger.pid} {start_time(stranger.pid)} another-boot\n"
                (tmp_path / "labs" / lab.name / node / "pid").write_text(now)
            again = StandingLab(lab.name, labs=tmp_path / "labs", owned=True)
            assert again.pid("host1") is None
            assert again.status().problems
            assert again.down()
            assert left_behind(tmp_path / "labs", lab.name) == []
            assert stranger.poll() is None
        finally:
            stranger.kill()


def danaus_lab(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run ``danaus lab`` as people do."""
    before = options.pop("before", ())
    return subprocess.run(
        [*before, sys.executable, "-m", "danaus.cli.main", "lab", *words],  # type: ignore[misc]
        env=ENVIRONMENT, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


@pytest.fixture
def name():
    name = f"t{os.getpid()}"
    yield name
    done = danaus_lab("down", "--name", name)
    assert done.returncode == 0, done.stderr
    assert left_behind(LABS / "none", name) == []


@pytest.mark.timeout(240)  # fifteen commands, on a machine that does much else
def test_the_commands_build_a_lab_that_stays(name):
    def said(*words: str, code: int = 0) -> str:
        done = danaus_lab(*words, "--name", name)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "2 hosts" in said("up", "--hosts", "2", "--agent", "none")
    assert f"lab {name} is up already" in said("up", "--hosts", "2", "--agent", "none")
    assert "take it down first" in said("up", "--hosts", "3", code=2)
    said("cut", "host1", "controller", "--one-way")
    said("link", "host2", "--delay-ms", "5", "--loss", "0.1")
    told = said("status")
    assert "host1 does not reach controller" in told
    assert "controller does not reach" not in told
    assert "link: 5 ms 10 % lost" in told
    said("heal")
    assert "does not reach" not in said("status")
    said("crash", "host1")
    assert "down" in said("status")
    said("start", "host1")
    ran = danaus_lab("run", "--name", name, "host1", "--", "sh", "-c", "cat /etc/hosts; exit 7")
    assert ran.returncode == 7
    assert "host2" in ran.stdout
    assert "there is controller, host1 to host2" in said("cut", "host9", code=2)
    assert f"lab {name} is down" in said("down")
    assert "nothing to take down" in said("down")
    assert "there is no lab" in said("cut", "host1", code=2)


@pytest.mark.timeout(120)
def test_what_cannot_be_run_or_followed_is_said_in_one_sentence(name):
    assert danaus_lab("up", "--name", name, "--hosts", "1", "--agent", "none").returncode == 0
    for words, says in (
        (("up", "--agent", "sh -c 'x"), "is no command: No closing quotation"),
        (("link", "host1", "--delay-ms", "inf"), "a delay of inf"),
        (("run", "controller", "no-such-program"), "no-such-program cannot be run"),
    ):
        done = danaus_lab(words[0], "--name", name, *words[1:])
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
    assert "danaus lab run HOST" in danaus_lab("run", "--help").stdout


@pytest.mark.parametrize("command", ["up", "status", "cut", "run", "down"])
def test_who_is_not_root_is_told_in_one_sentence(command):
    # In a user namespace without a mapping we are nobody, and still may read our own files.
    before = ["unshare", "--user"]
    if subprocess.run([*before, "true"], capture_output=True, timeout=20, check=False).returncode:
        pytest.skip("this machine has no user namespaces")
    done = danaus_lab(command, before=before)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "needs root; run it as root, or with sudo" in done.stderr
