"""``danaus train`` as a person uses it: seen, stopped in every way, resumed, to the same bits."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from tests.procs.cli.terminal import TINY, Command, sha256_in, text, told

from danaus.app.events import Event
from danaus.app.settings import RunConfig
from danaus.cli.arguments import read
from danaus.core.config import load
from danaus.testing.runs import plain_sha256
from danaus.train.presets import preset

TWO = ("train", "debug", *TINY, "--replicas=2")


def started(folder: Path, run: str, steps: int, **how: bool) -> Command:
    """Start a tiny run of two replicas."""
    return Command(folder, *TWO, f"--steps={steps}", f"--run-dir={run}", **how)


def plain(folder: Path, steps: int) -> str:
    """Return the hash that one process alone comes to with the same settings."""
    flags = dict(read((*TINY, f"--steps={steps}"), RunConfig, "train").settings)
    flags["data.path"] = str(folder / "text.txt")
    return plain_sha256(load(RunConfig, base=preset("debug"), overrides=flags))


def checkpoints(run: Path) -> int | None:
    """Return how many checkpoints a run has written, None before the first."""
    return len(told(run, Event.CHECKPOINT_WRITTEN)) or None


def pids(run: Path) -> list[int]:
    """Return the pids that a run's journal names."""
    named = (Event.PROCESS_STARTED, Event.SERVICE_STARTED, Event.RUN_STARTED)
    return [line["pid"] for event in named for line in told(run, event)]


def gone(no_leaks, limit_s: float = 10.0) -> bool:
    """Tell whether nothing of what was started is left, within P-4's limit."""
    return not no_leaks.leaks(limit_s)


def test_a_run_in_a_pipe(tmp_path: Path) -> None:
    text(tmp_path)
    with started(tmp_path, "a", 25) as run:
        assert run.wait() == 0

    assert "\x1b" not in run.text
    lines = run.text.splitlines()
    assert lines[0] == "folder a"
    assert lines[1] == "text   text.txt, 65,536 bytes of 1 file"
    assert lines[2] == "model  Llama, 26,784 parameters (2 layers of width 32)"
    assert any(re.match(r"step 1/25  loss 5\.5\d+  2 of 2 replicas", line) for line in lines)
    assert any(re.match(r"step 25/25  loss [\d.]+  [\d,]+ tokens/s", line) for line in lines)
    assert lines[-1].startswith("finished: 25 steps, no replica was started again; final state sha")
    assert sha256_in(run.text) == plain(tmp_path, 25)

    with Command(tmp_path, "train", "--resume", "a") as again:
        assert again.wait() == 0
    assert again.text.splitlines() == [lines[-1], "there is nothing left to do"]
    assert len(told(tmp_path / "a", Event.PROCESS_STARTED)) == 2


@pytest.mark.timeout(150)
def test_stopped_in_every_way_and_resumed_it_comes_to_the_same_bits(tmp_path, no_leaks) -> None:
    text(tmp_path)
    folder = tmp_path / "a"
    with started(tmp_path, "a", 60, on_terminal=True) as run:
        run.wait_until(lambda: checkpoints(folder))
        run.wait_for(r"step \d+/60 .*loss .*tokens/s.*●●")
        run.ctrl_c()
        assert run.wait(limit_s=15.0) == 130
    assert re.search(r"stopped after step \d+ \(Ctrl-C\); go on with: .* --resume a", run.text)
    assert "Traceback" not in run.text
    assert gone(no_leaks, 0.5)

    had = checkpoints(folder) or 0
    with Command(tmp_path, "train", "--resume", "a") as run:
        run.wait_until(lambda: (checkpoints(folder) or 0) > had or None)
        run.signal(signal.SIGKILL)
        assert run.wait() == 128 + signal.SIGKILL
    assert gone(no_leaks)

    had = checkpoints(folder) or 0
    with Command(tmp_path, "train", "--resume", "a") as run:
        run.wait_for(r"all go on from the checkpoint of step \d0")
        run.wait_until(lambda: (checkpoints(folder) or 0) > had or None)
        run.signal(signal.SIGTERM)
        assert run.wait(limit_s=15.0) == 128 + signal.SIGTERM
    assert gone(no_leaks, 0.5)

    with Command(tmp_path, "train", "--resume", "a") as run:
        assert run.wait() == 0
    assert sha256_in(run.text) == plain(tmp_path, 60)
    with Command(tmp_path, "ledger", "verify", "a") as verify:
        assert verify.wait() == 0
    assert "60 steps, 480 samples" in verify.text


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_nurseries_still_load_torch(tmp_path, no_leaks, times) -> None:
    text(tmp_path)
    with started(tmp_path, "a", 50, on_terminal=True) as run:
        run.wait_until(lambda: told(tmp_path / "a", Event.SERVICE_STARTED) or None)
        for _ in range(times):
            run.ctrl_c()
        assert run.wait(limit_s=15.0) == 130
    assert "Traceback" not in run.text
    assert "rror" not in run.text
    assert not told(tmp_path / "a", Event.REPLICA_FAILED)
    assert gone(no_leaks, 10.0 if times > 1 else 0.5)


def test_a_terminal_that_is_closed_ends_the_run(tmp_path, no_leaks) -> None:
    text(tmp_path)
    with started(tmp_path, "a", 500, on_terminal=True) as run:
        run.wait_for(r"step \d+/500 .*loss")
        run.close_terminal()
        assert run.wait(limit_s=15.0) == 128 + signal.SIGHUP
    assert gone(no_leaks, 0.5)
    (stopped,) = told(tmp_path / "a", Event.RUN_STOPPED)
    assert stopped["reason"] == "the terminal was closed"


def test_a_detached_run_outlives_its_terminal(tmp_path, no_leaks) -> None:
    text(tmp_path)
    detached = (*TWO, "--detached", "--run-dir=a", "--steps=60")
    with Command(tmp_path, *detached, on_terminal=True) as run:
        run.wait_for(r"step \d+/60 .*loss")
        run.close_terminal()
        assert run.wait() == 0
    assert gone(no_leaks, 0.5)
    (finished,) = told(tmp_path / "a", Event.RUN_FINISHED)
    assert finished["step"] == 60


def test_a_reader_that_goes_away_ends_the_run(tmp_path, no_leaks) -> None:
    text(tmp_path)
    with started(tmp_path, "a", 500) as run:
        run.wait_for("train \\(quorum")
        run.close_terminal()
        assert run.wait(limit_s=20.0) == 1
    assert gone(no_leaks, 0.5)


def test_a_second_controller_is_refused(tmp_path) -> None:
    text(tmp_path)
    with started(tmp_path, "a", 500) as run:
        run.wait_for("train \\(quorum")
        with Command(tmp_path, "train", "--resume", "a") as other:
            assert other.wait() == 2
        assert f"already holds a run whose controller is alive (pid {run.pid})" in other.text
        run.ctrl_c()
        assert run.wait(limit_s=15.0) == 130


def test_sums_that_are_not_finite_end_the_run(tmp_path) -> None:
    text(tmp_path)
    wild = ("--optim.lr=1e30", "--optim.warmup-steps=0", "--optim.clip-norm=0")
    with Command(tmp_path, *TWO, *wild, "--run-dir=a", "--steps=50") as run:
        assert run.wait() == 1
    last = run.text.splitlines()[-1]
    assert last.startswith("danaus: the run failed: step 2 comes out unfit for use each time")
    assert "the gradient is not finite in embedding.weight, 3 times in a row" in last
    assert last.endswith("its journal and logs are in a")
    assert "Traceback" not in run.text


def test_a_replica_that_cannot_come_back_ends_the_run_once_its_restarts_are_used(tmp_path) -> None:
    data = text(tmp_path)
    few = "--restart.intensity=2"
    with Command(tmp_path, *TWO, few, "--run-dir=a", "--steps=5000") as run:
        victim = int(run.wait_for(r"replica-1 started: pid (\d+)")[1])
        run.wait_for("train \\(quorum")
        data.unlink()
        os.kill(victim, signal.SIGKILL)
        assert run.wait() == 1
    last = run.text.splitlines()[-1]
    assert "replica-1 failed more than 2 times in 60 s, last: data.path" in last
    assert "does not exist" in last
    assert "Traceback" not in run.text
    assert "a fault from outside" in run.text
