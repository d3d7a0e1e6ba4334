"""The same actors where processes must not be forked, and where there is no uvloop (P-6)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from danaus.actor import Actor, Restart, SupervisionError, endpoint
from danaus.actor.procfs import read_stat
from danaus.testing.hosts import Hosts

LIMIT_S = 30.0
ROOT = Path(__file__).parents[3]


class Place(Actor):
    def __init__(self, start: int = 0) -> None:
        self.n = start

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def add(self, k: int) -> int:
        self.n += k
        return self.n


@pytest.fixture
def spawning(tmp_path, request):
    hosts = Hosts(1, tmp_path, module=request.module)
    hosts.job.spawns = True
    with hosts:
        yield hosts


def test_workers_that_are_not_forked_do_die_and_come_again_like_others(spawning):
    procs = spawning.host(0).spawn_procs({"r": 2}, name="w")
    places = procs.spawn("place", Place, 7)
    assert places.add.call(1).get(LIMIT_S).values() == (8, 8)
    first, second = places.pid.call().get(LIMIT_S).values()
    nursery = spawning.nursery_pid(0)
    assert {read_stat(pid).parent for pid in (first, second)} == {nursery}
    words = Path(f"/proc/{first}/cmdline").read_bytes()
    assert b"danaus.actor.spawned" in words, "it is no copy of its nursery"
    os.kill(first, signal.SIGKILL)
    failure = spawning.failure()
    assert (failure.mesh, failure.ranks, failure.signal) == ("w", (0,), "SIGKILL")
    with pytest.raises(SupervisionError):
        places.slice(r=0).add.call_one(1).get(LIMIT_S)
    again = spawning.host(0).spawn_procs(name="again").spawn("place", Place, restart=Restart())
    before = again.pid.call_one().get(LIMIT_S)
    os.kill(before, signal.SIGKILL)
    while not (answer := again.pid.settled().get(LIMIT_S).item()).ok or answer.value == before:
        pass
    procs.stop().get(LIMIT_S)
    assert read_stat(second) is None or read_stat(second).is_zombie


SCRIPT = """
import asyncio, os, signal
from danaus.actor import Actor, SupervisionError, endpoint, shutdown_context, this_host

class Place(Actor):
    @endpoint
    async def loop(self) -> str:
        await asyncio.sleep(0)
        return type(asyncio.get_running_loop()).__module__

    @endpoint
    def pid(self) -> int:
        return os.getpid()

if __name__ == "__main__":
    places = this_host().spawn_procs({"r": 2}).spawn("place", Place)
    print(*places.loop.call().get(30).values())
    import danaus.actor
    danaus.actor.unhandled_fault_hook = lambda failure: None
    os.kill(places.slice(r=0).pid.call_one().get(30), signal.SIGKILL)
    try:
        places.slice(r=0).pid.call_one().get(30)
    except SupervisionError:
        print("told")
    shutdown_context()
"""


def test_actors_talk_and_die_on_plain_asyncio_too(tmp_path):
    (tmp_path / "uvloop.py").write_text("raise ImportError('not on this platform')\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join((str(tmp_path), str(ROOT / "src")))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.stdout.splitlines() == ["asyncio.unix_events asyncio.unix_events", "told"], done
