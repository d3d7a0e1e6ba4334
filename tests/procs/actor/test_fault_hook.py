"""What becomes of a program whose failures nobody handles (A-7)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 30.0
UNHANDLED = """
import os, signal, threading
from danaus.actor import this_host
procs = this_host().spawn_procs(name="w")
procs.initialized.get(timeout=20.0)
print("last words")
os.kill(*procs.pids().values(), signal.SIGKILL)
threading.Event().wait(20.0)
"""


LEAVING = """
import sys, threading
from danaus.actor import Actor, endpoint, this_proc
class Leaver(Actor):
    @endpoint
    def leave(self):
        print("last words")
        sys.exit(3)
this_proc().spawn("leaver", Leaver).leave.broadcast()
threading.Event().wait(20.0)
"""


HOOKED = """
import os, queue, sys
import danaus.actor
from danaus.actor import Actor, endpoint, this_proc
class Failing(Actor):
    @endpoint
    def fail(self):
        raise ValueError("no")
called = queue.Queue()
def hook(failure):
    (HOOK)(failure)
    called.put(failure)
danaus.actor.unhandled_fault_hook = hook
this_proc().spawn("failing", Failing).fail.broadcast()
called.get(timeout=20.0)
"""


def _run(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3] / "src"),
        "TMPDIR": str(tmp_path),
        "PYTHONUNBUFFERED": "",
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False,
    )  # fmt: skip


def test_an_exit_in_an_actor_of_the_program_loses_no_last_words(tmp_path: Path) -> None:
    ended = _run(LEAVING, tmp_path)
    assert (ended.returncode, ended.stdout) == (3, "last words\n")


def test_it_ends_with_1_and_says_why_and_all_that_it_had_to_say(tmp_path: Path) -> None:
    ended = _run(UNHANDLED, tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "last words\n")
    assert "nobody handled this failure:\nw[hosts=0] failed (signal)" in ended.stderr
    assert "__supervise__" in ended.stderr


@pytest.mark.parametrize(
    ("hook", "code", "said"),
    [
        ("lambda failure: print('handled')", 0, ""),
        ("lambda failure: sys.exit(3)", 3, ""),
        ("lambda failure: 1 / 0", 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_hook_that_returns_has_handled_it_and_one_that_raises_has_not(
    tmp_path: Path, hook: str, code: int, said: str
) -> None:
    ended = _run(HOOKED.replace("HOOK", hook), tmp_path)
    assert ended.returncode == code, ended
    assert said in ended.stderr
    assert ended.stdout == ("handled\n" if code == 0 else "")
