"""``danaus roll``: the code of a run has changed, and the run goes on with the new."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.paced_runs import nothing_is_lost

from danaus.app.events import Event
from danaus.testing.faults import Pace
from danaus.testing.runs import Shape, small_run
from danaus.testing.watching import RunWatch

SHAPE = Shape(replicas=2, leaves=3, steps=200)
STEP_S = 0.3
SOURCE = Path(__file__).parents[2] / "src"

CONTROLLER = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from danaus.testing.runs import running

if __name__ == "__main__":
    with running(pickle.loads(Path(sys.argv[2]).read_bytes())) as going:
        print(going.result(200).sha256, flush=True)
"""
ROLL = "import sys; from danaus.cli.main import main; sys.argv[0] = 'danaus'; sys.exit(main())"

# Code is told apart by what a process leaves in a folder once it has imported the package, and by
# what a worker says of the platform that it found.
PACKAGE = """
import os
open(os.path.join({said!r}, f"{{os.getpid()}}-{code}"), "a").close()
"""
PLATFORM = """
_told = CpuPlatform.environment
CpuPlatform.environment = lambda self: {{**_told(self), "code": "{code}"}}
"""


class Workspace:
    """The project's code in a folder of its own, where it may change.

    Args:
        path: The folder, to be made.
    """

    def __init__(self, path: Path) -> None:
        self.source, self.said = path / "src", path / "said"
        shutil.copytree(SOURCE / "danaus", self.source / "danaus")
        self.said.mkdir()

    def write(self, code: str) -> None:
        """Have the code say who it is."""
        for name, more in (("__init__.py", PACKAGE), ("platform/cpu.py", PLATFORM)):
            text = (SOURCE / "danaus" / name).read_text()
            more = more.format(said=str(self.said), code=code)
            (self.source / "danaus" / name).write_text(text + more)

    def code_of(self, pid: int) -> str:
        """Return what code a process has imported."""
        (found,) = self.said.glob(f"{pid}-*")
        return found.name.partition("-")[2]


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def controlled(workspace, tmp_path):
    """Start a run from the workspace, under a controller of its own process."""
    started = []

    def start(run):
        (tmp_path / "run.pickle").write_bytes(pickle.dumps(run))
        command = [sys.executable, "-c", CONTROLLER, workspace.source, tmp_path / "run.pickle"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def hosted(watch, workspace):
    """Return the code of the agents and nurseries of all hosts."""
    pids = [watch.pids(host) for host in range(SHAPE.replicas)]
    return {workspace.code_of(each[name]) for each in pids for name in ("agent", "nursery")}


def ready(watch):
    """Return the code of the newest worker of each replica."""
    lines = watch.events(Event.WORKER_READY)
    return {line["replica"]: line["environment"]["code"] for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_goes_on_with_code_that_has_changed(workspace, controlled, undisturbed, tmp_path):
    pace = Pace(STEP_S, until=tmp_path / "fast")
    observers = {f"replica-{n}": (pace,) for n in range(SHAPE.replicas)}
    run = small_run(tmp_path / "run", SHAPE, observers=observers)
    workspace.write("A")
    controller = controlled(run)
    watch = RunWatch(run.folder, ended=lambda: controller.poll() is not None)
    watch.until_members(2, limit_s=60)
    assert hosted(watch, workspace) == {"A"}
    assert ready(watch) == {"replica-0": "A", "replica-1": "A"}
    workspace.write("B")
    watch.until_moved(2)
    command = [sys.executable, "-c", ROLL, "roll", str(run.folder.path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "replica-0 is back" in said
    assert "replica-1 is back" in said
    assert hosted(watch, workspace) == {"B"}
    assert ready(watch) == {"replica-0": "B", "replica-1": "B"}
    assert workspace.code_of(controller.pid) == "A", "the run was not stopped"
    nothing_is_lost(watch)
    (tmp_path / "fast").touch()
    assert controller.communicate(timeout=120)[0].strip() == undisturbed(run)
