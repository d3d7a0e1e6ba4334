"""``danaus roll``: the code of a run has changed, and the run goes on with the new."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.paced_runs import nothing_is_lost

from danaus.app.events import Event
from danaus.testing.runs import Shape
from danaus.testing.watching import RunWatch

SHAPE = Shape(replicas=2, leaves=3, steps=200)
SOURCE = Path(__file__).parents[2] / "src"

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
def test_a_run_goes_on_with_code_that_has_changed(
    workspace, paced, controlled, undisturbed, tmp_path
):
    run = paced(SHAPE)
    workspace.write("A")
    controller = controlled(run, source=workspace.source)
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
