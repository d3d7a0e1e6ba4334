"""The reference of a campaign: the same training, undisturbed, beside the run that is struck.

Owns ``Undisturbed`` and the process it starts (``python -m danaus.app.undisturbed``), which
writes each step's fingerprint, and the state's hash at the end, into ``undisturbed.jsonl``.  That
is one process that trains alone; ranks of one replica need each other, so with several ranks it is
a run of one replica: ``OneReplica``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from danaus.app.campaign_controller import Controller, fast_path
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import Commit, RunRecord, read_end, read_run
from danaus.app.settings import RunConfig
from danaus.app.stopping import StopSignals
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError
from danaus.core.lifeline import arm_lifeline, open_lifeline

NAME = "undisturbed"
_NICENESS = 5
_LOOK_S = 0.2
_HANG_LIMIT_S = 600.0


class Undisturbed:
    """Train a run's settings alone, in another process, from now on; close it.

    Args:
        folder: The run's.
        out: Where the lines are written.
    """

    def __init__(self, folder: RunFolder, out: Path) -> None:
        self._out = out
        self._lifeline = open_lifeline()
        command = [sys.executable, "-m", __name__, str(folder.path), str(out)]
        with out.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self._lifeline[0])],
                pass_fds=self._lifeline[:1],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self, limit_s: float, signals: StopSignals) -> tuple[RunRecord, str]:
        """Wait for its end; return what it wrote, as a run's record, and its state's SHA-256.

        Raises:
            ConfigError: It did not come to its end.
            KeyboardInterrupt: It was asked to end.
        """
        deadline, code = Deadline.after(limit_s), None
        while code is None and not deadline.passed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_LOOK_S)
            if signals.asked:
                raise KeyboardInterrupt
        lines = self._out.read_text().splitlines() if self._out.exists() else []
        if code != 0 or not lines:
            how = "not done" if code is None else f"exit code {code}"
            raise ConfigError(
                f"the undisturbed training came to no end: {how} after {limit_s:.0f} s",
                to_do=f"see {os.path.relpath(self._out.with_suffix('.log'))}",
            )
        *steps, (_, sha256) = [json.loads(line) for line in lines]
        lineage = {step: (Commit(NAME, 0, step, 0.0, 0.0, found),) for step, found in steps}
        return RunRecord(self._out.with_suffix(""), lineage=lineage), sha256

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for fd in self._lifeline:
            os.close(fd)


def alone(settings: RunConfig, path: Path, hosts: tuple[str, ...] = ()) -> RunConfig:
    """Return the settings of a run of one replica that nothing is done to.

    What goes on beside it keeps the machine busy: that is no reason to take it for hung. Killed for
    that it would begin anew, since nobody else has its state.

    Args:
        settings: Of the run that it is compared with.
        path: Its folder.
        hosts: Where it runs; none: on this machine.
    """
    return dataclasses.replace(
        settings, replicas=1, hosts=hosts, run_dir=path, hang_limit_s=_HANG_LIMIT_S
    )


class OneReplica:
    """Train a run's settings as a run of one replica, from now on; close it.

    Args:
        settings: The run's.
        path: The folder of the one beside it, to be made.
    """

    def __init__(self, settings: RunConfig, path: Path) -> None:
        self._folder = RunFolder.create(path, alone(settings, path))
        self._folder.release()
        self._controller = Controller(self._folder, self._folder.log_path("controller"))
        fast_path(path).touch()
        self._controller.start()

    def wait(self, limit_s: float, signals: StopSignals) -> tuple[RunRecord, str]:
        """Wait for its end; return its record and its state's SHA-256.

        Raises:
            ConfigError: It did not come to its end.
            KeyboardInterrupt: It was asked to end.
        """
        deadline, never = Deadline.after(limit_s), threading.Event()
        while self._controller.poll() is None and not deadline.passed:
            never.wait(_LOOK_S)
            if signals.asked:
                raise KeyboardInterrupt
        end = read_end(self._folder)
        if end is None:
            raise ConfigError(
                "the undisturbed training came to no end",
                to_do=f"see {os.path.relpath(self._folder.path)}",
            )
        return read_run(self._folder.path), end.sha256

    def close(self) -> None:
        """End it."""
        self._controller.close()


def _main(run: Path, out: Path, lifeline_fd: int) -> None:
    arm_lifeline(lifeline_fd)
    os.nice(_NICENESS)
    # Loads torch, in this process only.
    import torch

    from danaus.app.settings import saved
    from danaus.train.plain import run_plain
    from danaus.train.trainer import StepResult, Trainer

    config = saved(RunFolder.open(run))
    torch.set_num_threads(config.platform.num_threads)
    trainer = Trainer(config)
    with out.open("w") as file:

        def write(result: StepResult) -> None:
            file.write(json.dumps([result.step, trainer.fingerprint()]) + "\n")

        sha256 = run_plain(trainer, config.step.num_steps, write)
        file.write(json.dumps([0, sha256]) + "\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
