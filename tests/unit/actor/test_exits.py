"""What the end of a process means, and what is known of processes from the kernel."""

from __future__ import annotations

import os
import signal

import pytest

from danaus.actor import procfs
from danaus.actor.exits import fault_of_exit
from danaus.actor.identity import check_name, job_of, process_id
from danaus.actor.log_tail import LogFollower, log_path, tail
from danaus.actor.pid_registry import PidRegistry
from danaus.core.errors import ConfigError
from danaus.wire.lifecycle import ProcessExited
from danaus.wire.secret import Secret


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (ProcessExited("p", signal="SIGKILL"), "signal", "ended by SIGKILL"),
        (ProcessExited("p", exit_code=0), "exit", "exit code 0"),
        (ProcessExited("p", exit_code=3), "exit", "exit code 3"),
        (ProcessExited("p", signal="SIGKILL", reason="hang: stood still"), "hang", "stood still"),
        (ProcessExited("p", signal="SIGKILL", reason="fenced"), "signal", "fenced"),
        (ProcessExited("p", reason="not running here"), "exit", "not running here"),
    ],
)
def test_an_exit_in_words(said, kind, words):
    fault = fault_of_exit(said, 5.0)
    assert (fault.kind, fault.time_s) == (kind, 5.0)
    assert words in fault.reason


def test_a_wait_status_is_an_exit_code_or_a_signal():
    assert procfs.split_status(3 << 8) == (3, None)
    assert procfs.split_status(int(signal.SIGKILL)) == (None, "SIGKILL")
    assert procfs.split_status(None) == (None, None)


def test_the_kernel_tells_of_this_process():
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    assert stat.parent == os.getppid()
    assert stat.started > 0
    assert not stat.is_zombie
    assert not stat.is_stopped


def test_a_process_that_is_not_there_is_not_killed():
    assert procfs.read_stat(2**30) is None
    assert not procfs.kill_exactly(2**30, 1)
    stat = procfs.read_stat(os.getpid())
    assert not procfs.kill_exactly(os.getpid(), stat.started + 1)


def test_names_that_cannot_stand_in_a_process_id_are_refused():
    assert process_id("host0", check_name("a-b", "name"), 1, incarnation=2) == "host0/a-b/1#2"
    for bad in ("", "a/b", "a#b", "a b", ".."):
        with pytest.raises(ConfigError):
            check_name(bad, "the name of a mesh")


def test_a_job_has_a_public_name_that_depends_on_its_secret():
    one, other = Secret.generate(), Secret.generate()
    assert job_of(one) == job_of(one) != job_of(other)


def test_the_end_of_a_log(tmp_path):
    path = tmp_path / "log"
    assert tail(path) == ()
    path.write_text("".join(f"line {n}\n" for n in range(5000)))
    assert tail(path, 2) == ("line 4998", "line 4999")
    assert log_path("/r", "host0/a/1#0") == "/r/logs/host0-a-1#0.log"


def test_a_follower_returns_whole_lines_once(tmp_path):
    path = tmp_path / "log"
    follower = LogFollower(path)
    assert follower.lines() == ()
    path.write_text("one\ntw")
    assert follower.lines() == ("one",)
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert follower.lines() == ("two", "three")
    assert follower.lines() == ()
    assert LogFollower(path, from_tail=True).lines()[-1:] == LogFollower(path).lines()[-1:]


def test_a_registry_is_read_by_the_next(tmp_path):
    first = PidRegistry(tmp_path)
    first.add("a", 2**30, 5)
    first.add("b", os.getpid(), 1)  # this pid, but another process had it
    first.drop("a")
    second = PidRegistry(tmp_path)
    assert second.read() == {"b": (os.getpid(), 1)}
    assert second.clear_leftovers(1.0) == []
    assert second.read() == {}
    (tmp_path / "pids.json").write_text("{torn")
    assert second.read() == {}
