"""Code that changes where the program runs reaches workers on other hosts."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from danaus.actor import Actor, ActorError, Restart, SupervisionError, endpoint
from danaus.core.errors import ConfigError

LIMIT_S = 20.0


class Caller(Actor):
    """Knows nothing of the code that is brought, but its name."""

    @endpoint
    def call(self, module: str, function: str) -> object:
        return getattr(importlib.import_module(module), function)()

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Code:
    """A folder that this program imports from, and workers cannot know of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.fixture
def code(two, tmp_path):
    """Made after the hosts, which have this program's import path as it was."""
    made = Code(tmp_path / "recipes")
    made.write(
        "wss_recipe.py",
        "import wss_parts.oven\n\ndef bake():\n    return wss_parts.oven.heat() + 1\n",
    )
    made.write("wss_parts/__init__.py", "")
    made.write("wss_parts/oven.py", "def heat():\n    return 200\n")
    made.write("wss_actors.py", ACTORS)
    sys.path.insert(0, str(made.folder))
    yield made
    sys.path.remove(str(made.folder))
    for name in [name for name in sys.modules if name.startswith("wss_")]:
        del sys.modules[name]


RECIPE = """
import wss_parts.oven

def bake():
    return wss_parts.oven.heat() + 1
"""

ACTORS = """
from danaus.actor import Actor, endpoint
import wss_recipe

class Baker(Actor):
    @endpoint
    def bake(self):
        return wss_recipe.bake(), 1
"""


def test_what_changed_reaches_every_process_and_nothing_else_is_sent(two, code):
    procs = two.hosts.spawn_procs({"r": 2}, name="w")
    callers = procs.spawn("caller", Caller)
    with pytest.raises(ExceptionGroup, match="4 of 4 actors failed"):
        callers.call.call("wss_recipe", "bake").get(LIMIT_S)
    first = procs.sync_workspace(code.folder).get(LIMIT_S)
    assert first.num_files == 4
    total = sum(len(path.read_bytes()) for path in code.folder.rglob("*.py"))
    assert first.sent_bytes == {"host0": total, "host1": total}
    assert callers.call.call("wss_recipe", "bake").get(LIMIT_S).values() == (201,) * 4
    code.write("wss_parts/oven.py", "def heat():\n    return 180\n")
    second = procs.sync_workspace(code.folder).get(LIMIT_S)
    changed = len((code.folder / "wss_parts" / "oven.py").read_bytes())
    assert second.sent_bytes == {"host0": changed, "host1": changed}
    assert second.reloaded.sizes == {"hosts": 2, "r": 2}
    assert second.reloaded.get(3) == ["wss_parts.oven"]
    assert callers.call.call("wss_recipe", "bake").get(LIMIT_S).values() == (181,) * 4
    code.write("wss_parts/oven.py", "def heat():\n    return 200\n")  # as it was
    third = procs.sync_workspace(code.folder).get(LIMIT_S)
    assert third.sent_bytes == {"host0": 0, "host1": 0}
    assert third.digest == first.digest
    assert callers.call.call("wss_recipe", "bake").get(LIMIT_S).values() == (201,) * 4


def test_actors_of_the_code_that_is_brought_and_what_becomes_of_those_that_run(two, code):
    procs = two.hosts.spawn_procs(name="w")
    procs.sync_workspace(code.folder).get(LIMIT_S)
    bakers = procs.spawn("baker", importlib.import_module("wss_actors").Baker)
    assert bakers.bake.call().get(LIMIT_S).values() == ((201, 1), (201, 1))
    code.write("wss_actors.py", ACTORS.replace("(), 1", "(), 2"))
    code.write("wss_recipe.py", "def bake():\n    return 0\n")
    procs.sync_workspace(code.folder).get(LIMIT_S)
    assert bakers.bake.call().get(LIMIT_S).values() == ((0, 1), (0, 1))  # old class, new function
    again = procs.spawn("baker", importlib.reload(sys.modules["wss_actors"]).Baker)
    assert again.bake.call().get(LIMIT_S).values() == ((0, 2), (0, 2))


def test_processes_that_start_later_have_it_too(two, code):
    two.hosts.sync_workspace(code.folder).get(LIMIT_S)
    procs = two.hosts.spawn_procs(name="w")
    callers = procs.spawn("caller", Caller, restart=Restart())
    assert callers.call.call("wss_recipe", "bake").get(LIMIT_S).values() == (201, 201)
    one = callers.slice(hosts=1)
    pid = one.pid.call_one().get(LIMIT_S)
    os.kill(pid, signal.SIGKILL)
    while (outcome := one.pid.settled().get(LIMIT_S).item()).error or outcome.value == pid:
        pass
    assert one.call.call_one("wss_recipe", "bake").get(LIMIT_S) == 201
    (code.folder / "wss_recipe.py").unlink()
    procs.sync_workspace(code.folder).get(LIMIT_S)
    fresh = two.hosts.spawn_procs(name="v").spawn("caller", Caller)
    with pytest.raises(ActorError, match="No module named 'wss_recipe'"):
        fresh.slice(hosts=0).call.call_one("wss_recipe", "bake").get(LIMIT_S)


def test_a_host_that_cannot_take_it_is_told_of_and_nobody_takes_it_up(two, code):
    procs = two.hosts.spawn_procs(name="w")
    callers = procs.spawn("caller", Caller)
    procs.sync_workspace(code.folder).get(LIMIT_S)
    trees = two.run_dir / "workspace" / "host1" / "trees"
    trees.rename(trees.with_name("elsewhere"))
    trees.write_text("a file where a folder should be")
    code.write("wss_parts/oven.py", "def heat():\n    return 1\n")
    with pytest.raises(ActorError, match="trees"):
        procs.sync_workspace(code.folder).get(LIMIT_S)
    assert callers.slice(hosts=0).call.call_one("wss_recipe", "bake").get(LIMIT_S) == 201


def test_a_process_that_dies_meanwhile_is_told_of_and_the_rest_can_try_again(two, code):
    procs = two.hosts.spawn_procs({"r": 2}, name="w")
    callers = procs.spawn("caller", Caller)
    os.kill(callers.slice(hosts=1, r=1).pid.call_one().get(LIMIT_S), signal.SIGKILL)
    assert two.failure().process_ids == ("host1/w/3#0",)
    with pytest.raises(SupervisionError, match="SIGKILL"):
        procs.sync_workspace(code.folder).get(LIMIT_S)
    living = procs.slice(r=0)
    assert living.sync_workspace(code.folder).get(LIMIT_S).sent_bytes == {"host0": 0, "host1": 0}
    baked = callers.slice(r=0).call.call("wss_recipe", "bake").get(LIMIT_S)
    assert baked.values() == (201, 201)


def test_a_module_that_cannot_be_executed_is_told_of(two, code):
    procs = two.hosts.spawn_procs(name="w")
    callers = procs.spawn("caller", Caller)
    procs.sync_workspace(code.folder).get(LIMIT_S)
    callers.call.call("wss_recipe", "bake").get(LIMIT_S)
    code.write("wss_recipe.py", "raise RuntimeError('half written')")
    with pytest.raises(ActorError, match="half written"):
        procs.sync_workspace(code.folder).get(LIMIT_S)
    code.write("wss_recipe.py", "def bake():\n    return 7\n")
    procs.sync_workspace(code.folder).get(LIMIT_S)
    assert callers.call.call("wss_recipe", "bake").get(LIMIT_S).values() == (7, 7)


def test_what_is_no_folder_of_code_is_refused(one, tmp_path):
    with pytest.raises(ConfigError, match="is no folder"):
        one.host(0).spawn_procs(name="w").sync_workspace(tmp_path / "nowhere").get(LIMIT_S)
