"""The ``danaus`` command as users run it: what they see, and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.procs.cli.terminal import called

import danaus
from danaus.testing.run_folders import StoryTeller, tell_demo

SOURCE = Path(danaus.__file__).parents[1]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run ``danaus`` in an empty folder; ``before`` goes in front of the module path."""

    def start(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, (before, str(SOURCE))))
        return subprocess.run(
            [sys.executable, "-m", "danaus.cli.main", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    return start


def _one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """Check that bad input got one line and exit code 2; return the line."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("danaus: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("danaus: ").rstrip()


@pytest.fixture
def without_torch(tmp_path: Path) -> str:
    """Return a folder that makes torch look not installed."""
    folder = tmp_path / "without_torch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class WithoutTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
        "sys.meta_path.insert(0, WithoutTorch())\n"
    )
    return str(folder)


def test_help_is_there_without_torch_and_loads_next_to_nothing(
    run: Run, without_torch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    done = run("--help", before=without_torch)
    assert done.returncode == 0
    assert "danaus train [PRESET]" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "danaus.cli" in loaded
    assert not loaded & {"asyncio", "cloudpickle", "msgspec", "rich", "tyro", "uvloop"}


@pytest.mark.parametrize("command", ["train", "demo", "compare", "report", "doctor"])
def test_help_of_a_command_needs_no_torch(run: Run, without_torch: str, command: str) -> None:
    done = run(command, "--help", before=without_torch)

    assert done.returncode == 0, done.stderr
    assert f"danaus {command}" in done.stdout


def test_presets_are_listed(run: Run, without_torch: str) -> None:
    done = run("train", before=without_torch)

    assert done.returncode == 0
    assert "debug" in done.stdout
    assert "danaus train debug --replicas 3" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tran",), "danaus has no command 'tran'; did you mean 'train'?"),
        (("train", "debgu"), "no preset is called 'debgu'; did you mean 'debug'?"),
        (
            ("train", "debug", "--optim.rl", "1"),
            "unknown option --optim.rl; did you mean --optim.lr?",
        ),
        (("train", "debug", "--replicas", "0"), "replicas is 0: it must be at least 1"),
        (("train", "debug", "--replicas", "two"), "setting 'replicas' cannot be 'two': it needs"),
        (("train", "debug", "--data.path", "nowhere"), "data.path nowhere does not exist"),
        (("train", "debug", "--data", "empty"), "data.path empty is empty: a file; name a file"),
        (("train", "debug", "--data", "bad.toml"), "bytes of 1 file: one step reads 16 windows"),
        (("train", "debug", "--run-dir", "held"), "already holds a run; go on with it by --resume"),
        (
            ("train", "debug", "--config", "bad.toml"),
            "unknown setting 'optim.rl' in bad.toml; did you",
        ),
        (("train", "--resume", "nowhere"), "nowhere does not exist"),
        (
            ("train", "--resume", "held", "--steps", "9"),
            "step.num_steps was 400 when this run began",
        ),
        (("train", "--seed", "2"), "--step.seed without a preset: one of debug"),
        (("demo", "--replicas", "1"), "a demo with 1 replica: at least 2"),
        (("demo", "--no-heal"), "--no-heal has nothing to leave unhealed; add --sabotage"),
        (("demo", "--run-dir", "held"), "already holds a run; go on with it by --resume"),
        (("demo", "--run-dir", "bad.toml"), "is a file; choose another one with --run-dir"),
        (("demo", "--data", "nowhere"), "data.path nowhere does not exist"),
        (("report", "nowhere"), "nowhere does not exist"),
        (("compare", "held"), "B is missing: danaus compare takes A B"),
        (("ledger", "verify", "empty"), "is not a run folder"),
        (("bench", "speed"), "danaus has no bench 'speed'; there is: danaus bench recovery"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_gets_one_sentence(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "config.toml").write_text("")
    (tmp_path / "bad.toml").write_text("[optim]\nrl = 1\n")
    said = _one_sentence(called(tmp_path, *words))

    assert says in said
    assert not (tmp_path / "runs").exists(), "nothing may be made before all is checked"


def test_bad_input_ends_the_process_with_2(run: Run) -> None:
    assert "did you mean 'train'?" in _one_sentence(run("tran"))


def test_missing_torch_is_said_with_the_line_that_installs_it(
    run: Run, tmp_path: Path, without_torch: str
) -> None:
    for words in (("train", "debug"), ("demo",), ("bench", "recovery")):
        said = _one_sentence(run(*words, before=without_torch))

        assert "torch is not installed" in said
        assert "install it with: pip install" in said
    assert not (tmp_path / "runs").exists()


def test_a_torch_that_cannot_be_loaded_is_said_in_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise OSError('libgomp.so: no such file')\n")
    done = run("train", "debug", "--run-dir=a", before=str(tmp_path / "broken"))

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "torch is installed but cannot be loaded (libgomp.so: no such file)" in done.stderr
    assert "install it with: pip install" in done.stderr


def test_nothing_but_workers_loads_torch(without_torch: str) -> None:
    for module in ("danaus.app.launch", "danaus.app.demo", "danaus.cli.train", "danaus.train.text"):
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((without_torch, str(SOURCE)))},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_doctor_works_without_torch(run: Run, without_torch: str) -> None:
    done = run("doctor", before=without_torch)

    assert done.returncode == 1
    assert "pip install" in done.stdout


def test_two_runs_compared(run: Run, tmp_path: Path) -> None:
    tell_demo(tmp_path / "a")
    done = run("compare", "a", "a/undisturbed")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("SAME BITS in all 100 steps")
    other = StoryTeller(tmp_path / "b", loss_offset=0.5)
    other.run(10)
    done = run("compare", "a", "b")
    assert done.returncode == 1
    assert "DIFFERENT BITS from step 1 on" in done.stdout


def test_a_report_is_written_and_said(run: Run, tmp_path: Path) -> None:
    tell_demo(tmp_path / "a")
    done = run("report", "a")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["a/report.html", "a/report.png"]
    assert "\x1b" not in done.stdout
    assert "replica-1: worker killed" in done.stdout


def test_a_ledger_is_verified(run: Run, tmp_path: Path) -> None:
    story = StoryTeller(tmp_path / "a")
    story.run(10)
    assert run("ledger", "verify", "a").returncode == 0

    (tmp_path / "a" / "ledger" / "replica-0-0.jsonl").write_text("")
    (tmp_path / "a" / "ledger" / "replica-1-0.jsonl").write_text("")
    path = tmp_path / "a" / "ledger" / "replica-2-0.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:4] + lines[5:]) + "\n")
    done = run("ledger", "verify", "a")
    assert done.returncode == 1
    assert "WRONG  step 4: no ledger holds this step" in done.stdout


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    tell_demo(tmp_path / "a")
    shell = f"{sys.executable} -m danaus.cli.main report a | true"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert "Traceback" not in done.stderr
