"""``danaus stacks``: what the workers of a run are at, from the agents of its hosts."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from danaus.actor import Actor, endpoint, shutdown_context
from danaus.actor.procfs import read_stat
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.app.stacks import stacks_of
from danaus.cli.main import main
from danaus.job import LocalJob
from danaus.testing.hosts import wait_for_state

LIMIT_S = 20.0


class Stander(Actor):
    @endpoint
    def here(self) -> int:
        return os.getpid()

    @endpoint
    def stand_and_wait(self, path: str) -> None:
        with open(path, "w") as said:
            said.write("here")
        threading.Event().wait()


@pytest.fixture
def run(tmp_path):
    """A run folder whose two hosts have two workers each that stand in a function of theirs."""
    with RunFolder.create(tmp_path / "run", RunConfig()) as folder:
        job = LocalJob(2, run_dir=folder.path, secret_path=folder.secret_path).apply()
        procs = job.state().hosts.spawn_procs({"r": 2}, name="w")
        standers = procs.spawn("stander", Stander)
        pids = standers.here.call().get(LIMIT_S)
        folder.save_addresses(agents={f"host{n}": a for n, a in enumerate(_agents(procs))})
        for n, point in enumerate(standers.points()):
            fifo = tmp_path / f"said{n}"
            os.mkfifo(fifo)
            standers.slice(**point).stand_and_wait.broadcast(str(fifo))
            assert fifo.read_text() == "here"
        yield folder, [pid for _, pid in pids.items()]
        job.kill()
    shutdown_context()


def _agents(procs):
    return dict.fromkeys(procs.agent_addresses)


def test_every_thread_of_every_worker_is_shown_and_goes_on(run, capsys):
    folder, pids = run
    hosts = stacks_of(folder)
    assert [(each.host, each.why) for each in hosts] == [("host0", ""), ("host1", "")]
    seen = [process for host in hosts for process in host.processes]
    assert sorted(process.pid for process in seen) == sorted(pids)
    assert all("in stand_and_wait" in process.text for process in seen)
    assert main(["stacks", str(folder.path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("in stand_and_wait") == 1  # four stand alike, and are told of together
    assert all(f"(pid {pid}): starting" in shown for pid in pids)
    assert all(not read_stat(pid).is_zombie for pid in pids)


def test_one_that_is_stopped_and_a_host_that_is_gone_are_said_to_be(run, capsys):
    folder, pids = run
    os.kill(pids[0], signal.SIGSTOP)
    assert wait_for_state(pids[0], "T")
    agents = folder.addresses()["agents"]
    folder.save_addresses(agents={**agents, "host2": f"unix:{folder.path}/nobody"})
    assert main(["stacks", str(folder.path), "--only", "host0"]) == 0
    shown = capsys.readouterr().out
    assert "no stacks: the process is stopped" in shown
    assert f"(pid {pids[1]})" in shown
    assert "host1" not in shown
    assert main(["stacks", str(folder.path), "--only", "host2"]) == 1
    shown = capsys.readouterr().out
    assert "host2: cannot use address" in shown
    assert "no worker of this run whose name holds 'host2' is alive and can be asked" in shown
    os.kill(pids[0], signal.SIGCONT)


def test_a_run_without_workers_is_said_to_have_none(tmp_path, capsys):
    RunFolder.create(tmp_path / "run", RunConfig()).release()
    assert main(["stacks", str(tmp_path / "run")]) == 1
    assert "no worker of this run is alive" in capsys.readouterr().out
