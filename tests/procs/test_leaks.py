"""The watch over what tests leave behind finds each kind, and lets go what goes by itself."""

import os
import subprocess
import sys
import threading

import pytest

from danaus.testing.leaks import MARK, LeakCheck


@pytest.fixture
def check(monkeypatch):
    mark = f"{os.getpid()}-inner"
    monkeypatch.setenv(MARK, mark)
    return LeakCheck(mark)


def test_nothing_is_found_where_nothing_is_left(check):
    assert check.leaks(grace_s=0.0) == []


def test_a_child_is_found_and_killed(check):
    child = subprocess.Popen(["sleep", "60"])
    (line,) = check.leaks(grace_s=0.0)
    assert f"process {child.pid}: sleep 60" in line
    check.kill()
    assert check.leaks(grace_s=0.0) == []
    child.wait(timeout=5)


def test_an_orphan_is_found_by_its_mark(check):
    script = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=2).pid)"
    parent = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        timeout=30,
        check=True,
    )
    assert check.processes() == [int(parent.stdout)]
    check.kill()
    assert check.leaks(grace_s=1.0) == []


def test_a_child_that_ends_in_time_is_no_leak_once_it_is_reaped(check):
    child = subprocess.Popen(["sleep", "0.05"])
    reaper = threading.Thread(target=child.wait, args=(10,))
    reaper.start()
    assert check.leaks(grace_s=10.0) == []
    reaper.join(timeout=10)


def test_a_thread_is_found(check):
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(30,), name="forgotten")
    thread.start()
    assert check.leaks(grace_s=0.0) == ["thread forgotten"]
    release.set()
    thread.join(timeout=5)


def test_a_descriptor_is_found(check, tmp_path):
    with (tmp_path / "forgotten").open("w") as file:
        (line,) = check.leaks(grace_s=0.0)
        assert line == f"descriptor {file.fileno()}: {file.name}"
    assert check.leaks(grace_s=0.0) == []
