"""H-3 beside what else a run is asked: a drain in the middle of a repair, another controller."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.test_rank_repair import SHAPE, back, finish, paced, pid_of, repairs

from danaus.app.door import Door, Drain, Scale
from danaus.app.events import Event
from danaus.testing.faults import Pace
from danaus.testing.runs import running, small_run
from danaus.testing.watching import RunWatch

SOURCE = Path(__file__).parents[2] / "src"
CONTROLLER = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from danaus.testing.runs import running

if __name__ == "__main__":
    with running(pickle.loads(Path(sys.argv[2]).read_bytes())) as going:
        going.result(200)
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_replica_that_is_drained_while_it_is_repaired_is_gone_at_once(undisturbed, tmp_path):
    run = paced(tmp_path)
    with running(run) as going:
        watch = going.watch
        watch.until_members(3, limit_s=60)
        os.kill(pid_of(watch, 1, 0), signal.SIGSTOP)  # the repair waits for it
        os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
        watch.until(
            "the repair to begin",
            lambda: watch.events(Event.PROCESS_STARTED, replica="replica-1", incarnation=1),
        )
        Door(run.folder).ask(Drain("replica-1"), 20.0)
        assert repairs(watch, 1) == []
        watch.until_members(2)
        Door(run.folder).ask(Scale(3), 20.0)
        back(going, 1, 2)
        assert finish(going, tmp_path / "fast") == undisturbed(run)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_another_controller_goes_on_with_a_run_of_which_a_rank_was_replaced(undisturbed, tmp_path):
    """It starts that replica whole; the others it finds as they were left."""
    pace = Pace(0.3, until=tmp_path / "fast")
    observers = {f"replica-{n}": (pace,) for n in range(3)}
    more = {"detached": True, "watchdog": False}
    run = small_run(tmp_path / "run", SHAPE, observers=observers, **more)
    (tmp_path / "run.pickle").write_bytes(pickle.dumps(run))
    command = [sys.executable, "-c", CONTROLLER, str(SOURCE), str(tmp_path / "run.pickle")]
    watch = RunWatch(run.folder)
    with subprocess.Popen(command) as first:
        try:
            watch.until_members(3, limit_s=60)
            os.kill(pid_of(watch, 1, 1), signal.SIGKILL)
            watch.until("a repair", lambda: watch.events(Event.RANK_REPAIRED), limit_s=60)
            watch.until_moved(2)
        finally:
            first.kill()
    with running(run.again()) as going:
        line = watch.until("an adoption", lambda: watch.events(Event.RUN_ADOPTED), limit_s=60)[0]
        assert {"replica-0", "replica-2"} <= line["living"].keys()
        back(going, 1, 2)
        assert finish(going, tmp_path / "fast") == undisturbed(run)
