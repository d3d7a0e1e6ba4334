"""The controller of a campaign's run, in a process of its own, so that it can be killed too.

Owns ``Controller`` and the process it starts (``python -m danaus.app.campaign_controller``),
which does what ``danaus train`` does and, once it was killed, ``danaus train --resume``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from danaus.app.run_folder import RunFolder
from danaus.core.lifeline import arm_lifeline, open_lifeline

MARK = "DANAUS_CAMPAIGN"
"""The environment variable by which all processes of a campaign's run are recognised."""
STEP_S = 0.05
"""What a step takes at least while faults are still to come."""
_END_LIMIT_S = 20.0


def fast_path(run: Path) -> Path:
    """Return the file that lets a run's steps be as fast as they can."""
    return run / "control" / "fast"


class Controller:
    """Start the controller of a run, and again when it was killed; close it.

    Args:
        folder: The run's; nobody holds it.
        log: Where its output goes.
    """

    def __init__(self, folder: RunFolder, log: Path) -> None:
        self._folder, self._log = folder, log
        self._lifeline = open_lifeline()
        self._process: subprocess.Popen[bytes] | None = None
        self.mark = f"{os.getpid()}-{folder.path}"
        self.num_starts = 0

    def start(self) -> None:
        """Start it."""
        fd = self._lifeline[0]
        again = "again" if self.num_starts else "first"
        marked = ["env", f"{MARK}={self.mark}", "NO_COLOR=1", sys.executable]
        command = [*marked, "-m", __name__, str(self._folder.path), again, str(fd)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.num_starts += 1

    def poll(self) -> int | None:
        """Return how it ended, None while it lives; a signal's number is negative."""
        return self._process.poll() if self._process else None

    def left(self) -> list[int]:
        """Return the living processes of the run, whoever their parent is by now."""
        mine = f"{MARK}={self.mark}".encode()
        return [int(each.name) for each in Path("/proc").glob("[0-9]*") if _has(each, mine)]

    def close(self) -> None:
        """Ask it to end, and end it if it does not."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for fd in self._lifeline:
            os.close(fd)


def _has(process: Path, mine: bytes) -> bool:
    try:
        return mine in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _main(run: Path, lifeline_fd: int, *, resume: bool) -> int:
    arm_lifeline(lifeline_fd)
    # Loads the actor runtime, which whoever starts this process does not need.
    from danaus.app.experiment import RunOrder
    from danaus.app.launch import run_training
    from danaus.app.pace import Pace
    from danaus.app.progress import run_console
    from danaus.app.settings import saved

    config = saved(RunFolder.open(run))
    pace = (Pace(STEP_S, until=fast_path(run)),)
    observers = dict.fromkeys(config.replica_ids, pace)
    order = RunOrder(run, config, resume=resume, observers=observers)
    return run_training(order, console=run_console())


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), int(sys.argv[3]), resume=sys.argv[2] == "again"))
