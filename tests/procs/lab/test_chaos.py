"""Faults of the network act on a lab; processes in a lab's host are found and hit from here."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from danaus.actor import procfs
from danaus.app.chaos_lab import LabNetwork, lab_network
from danaus.app.lab_plan import Link
from danaus.testing.lab import Lab

_NOBODY = 65534


def test_a_lab_is_cut_slowed_crashed_and_mended(tmp_path) -> None:
    with Lab(hosts=2, folder=tmp_path) as lab:
        network = LabNetwork(lab, lab.plan.hosts)
        network.cut(0, 1, one_way=True)
        assert lab.plan.cuts == (("host1", "host2"),)
        network.cut(1, None, one_way=False)
        assert len(lab.plan.cuts) == 4, "from the other host and the controller, and back"
        network.heal(1, None)
        assert lab.plan.cuts == ()
        network.cut(1, "controller", one_way=True)
        assert lab.plan.cuts == (("host2", "controller"),)
        network.heal(1, "controller")
        assert lab.plan.cuts == ()
        network.link(0, loss=0.5)
        network.link(0, delay_s=0.01)
        assert lab.plan.link("host1") == Link(delay_s=0.01, loss=0.5)
        network.link(0, loss=0.0)
        network.link(0, delay_s=0.0)
        assert lab.plan.link("host1") == Link()
        network.crash(1)
        assert lab.pid("host2") is None
        network.start(1)
        assert lab.pid("host2") is not None


def test_a_process_of_a_host_is_known_here_by_its_pid_there(tmp_path) -> None:
    with Lab(hosts=1, folder=tmp_path) as lab:
        say_pid = ["sh", "-c", "echo $$; exec sleep 60"]
        process = lab.popen("host1", say_pid, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            inside = int(process.stdout.readline())
        stat = procfs.read_stat(_innermost(process.pid))
        assert stat is not None
        first = lab.pid("host1")
        assert first is not None
        assert procfs.pid_here(inside, first) == stat.pid
        assert procfs.pid_here(1, first) == first
        assert procfs.pid_here(inside, os.getpid()) != stat.pid, "here that is another process"
        assert procfs.signal_exactly(stat.pid, stat.started, signal.SIGKILL)
        process.wait(10)


def test_labs_of_root_are_passed_by_where_somebody_else_looks(fresh_labs) -> None:
    with Lab(hosts=1, folder=fresh_labs) as lab:
        hosts = (lab.listening("host1"),)
        assert lab_network(hosts, fresh_labs) is not None
        os.seteuid(_NOBODY)
        try:
            assert lab_network(hosts, fresh_labs) is None
        finally:
            os.seteuid(0)


@pytest.fixture
def fresh_labs() -> Iterator[Path]:
    """Return a folder that everybody sees, as they see where labs lie."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _innermost(pid: int) -> int:
    """Return the process that a chain of processes, each with one child, ends in."""
    children = procfs.children_of(pid)
    return _innermost(children[0]) if children else pid
