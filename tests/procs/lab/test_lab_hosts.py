"""A lab's hosts crash, start again and lose their agents; nothing stays of a lab."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.procs.lab.lab_parts import (
    ECHO,
    MANY,
    Datagrams,
    connected,
    echoed,
    left_behind,
    own,
    quiet,
    tables,
    users_of,
    wait,
)

from danaus.actor.procfs import children_of
from danaus.app import lab_works
from danaus.core.errors import ConfigError, SupervisionError
from danaus.testing.hosts import Watched
from danaus.testing.lab import CONTROLLER, Lab, Link, host_agent


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Lab]:
    """Return a lab of the test's own: the processes of hosts that it starts are its own too."""
    with Lab(hosts=3, folder=tmp_path, agent=ECHO) as own_lab:
        yield own_lab


def test_a_crash_ends_all_of_a_host_at_once_and_says_no_good_bye(fresh):
    client, server = connected(fresh, "host3", "host1")
    away = "import subprocess, sys; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    subprocess.run([*_inside(fresh, "host1"), sys.executable, "-c", away], timeout=20, check=True)
    first = fresh.pid("host1")
    assert first is not None
    inside = [Watched(pid) for pid in users_of(own(first, os.getpid()))]
    assert len(inside) == 3, "its first process, its agent and the one that went away"
    with client, server:
        fresh.crash("host1")
        fresh.crash("host1")
        assert all(each.ends_within(0.0) for each in inside)
        assert quiet(client)
        client.sendall(b"into the void")
        assert quiet(client)
        assert fresh.pid("host1") is None
        assert "down" in fresh.status().lines()[1]
        fresh.start("host1")
        fresh.start("host1")
        # The host is back and knows nothing of the old connection.
        with pytest.raises(ConnectionResetError):
            client.recv(64)
    for each in inside:
        each.close()
    assert echoed(fresh, "host2", "host1") == b"host1 hello"


def _inside(lab: Lab, host: str) -> list[str]:
    return ["nsenter", f"--target={lab.pid(host)}", "--mount", "--uts", "--ipc", "--net", "--pid"]


def test_a_host_that_starts_again_sends_nothing_before_its_cuts_stand(fresh, monkeypatch):
    done = []

    def noted(carry_out):
        def carry_out_and_note(what, **options):
            carry_out(what, **options)
            done.append(what)

        return carry_out_and_note

    fresh.cut("host1", "host2", one_way=True)
    fresh.crash("host1")
    for name in ("carry_out", "carry_out_lines"):
        monkeypatch.setattr(lab_works, name, noted(getattr(lab_works, name)))
    fresh.start("host1")
    (up,) = (at for at, what in enumerate(done) if ("link", "set", "eth0", "up") in what)
    assert ("nft", "-f", "-") in done[:up]


def test_links_and_cuts_outlive_a_crash(fresh):
    fresh.link("host1", Link(delay_s=0.01))
    fresh.cut("host1", "host2", one_way=True)
    fresh.crash("host1")
    fresh.start("host1")
    with Datagrams(fresh, "host1", "host2") as cut, Datagrams(fresh, "host1", "host3") as slow:
        cut.send(*MANY)
        slow.send(*MANY)
        wait(lambda: fresh.dropped("cut host1 host2") == len(MANY), "each frame to be dropped")
        wait(lambda: slow.read() == list(MANY), "each frame of the slow way")
        assert cut.read() == []


def test_an_agent_that_has_ended_is_told_and_started_again(fresh):
    first, agent = fresh.pid("host2"), fresh.agent_pid("host2")
    assert first is not None
    assert agent is not None
    assert children_of(first) == [agent]
    os.kill(agent, signal.SIGKILL)
    wait(lambda: "SIGKILL" in fresh.status().lines()[2], "its end to be told")
    fresh.start("host2")
    assert fresh.pid("host2") == first
    assert fresh.agent_pid("host2") not in (None, agent)
    assert echoed(fresh, "host1", "host2") == b"host2 hello"


def test_the_folder_of_labs_may_have_any_name_and_be_a_relative_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("what's # 'mine'")
    with Lab(hosts=1, folder=folder, agent=("sleep", "1000")) as lab:
        assert lab.agent_pid("host1") is not None
    assert left_behind(folder.absolute(), lab.name) == []


def test_a_full_disk_ends_no_host(tmp_path):
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], timeout=20, check=True
    )
    try:
        with Lab(hosts=1, folder=tmp_path, agent=("sleep", "1000")) as lab:
            filler = tmp_path / lab.name / "filler"
            with pytest.raises(OSError, match="No space left"):
                filler.write_bytes(bytes(2 << 20))
            first, agent = lab.pid("host1"), lab.agent_pid("host1")
            assert first is not None
            assert agent is not None
            os.kill(agent, signal.SIGKILL)
            wait(lambda: not children_of(first), "the agent to be reaped")
            filler.unlink()
            lab.start("host1")
            assert lab.pid("host1") == first
            assert lab.agent_pid("host1") is not None
    finally:
        subprocess.run(["umount", tmp_path], timeout=20, check=True)


def test_the_end_of_the_switch_is_told(tmp_path):
    with Lab(hosts=1, folder=tmp_path) as lab:
        switch = lab.pid("switch")
        assert switch is not None
        os.kill(switch, signal.SIGKILL)
        wait(lambda: lab.pid("switch") is None, "the switch to end")
        (problem,) = lab.status().problems
        assert "its switch is gone" in problem
        with pytest.raises(SupervisionError, match="switch is gone"):
            lab.cut("host1")
        lab.down()
    assert left_behind(tmp_path, lab.name) == []


def test_labs_that_are_built_at_once_share_no_address(tmp_path):
    with ExitStack() as up, ThreadPoolExecutor() as threads:
        labs = [Lab(hosts=1, folder=tmp_path) for _ in range(3)]
        for building in [threads.submit(up.enter_context, lab) for lab in labs]:
            building.result(60)
        assert len({lab.address("host1") for lab in labs}) == len(labs)


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_host_waits_to_be_joined_and_waits_again_after_a_crash(tmp_path, ipv6):
    with Lab(hosts=1, folder=tmp_path, agent=host_agent(), ipv6=ipv6) as lab:
        words = f"host1 waits to be joined at {lab.listening('host1')}"
        log = lab.log_path("host1")
        wait(lambda: log.read_text().count(words) == 1, words)
        seen = Path("/proc", str(lab.agent_pid("host1")), "root")
        assert list(seen.glob("dev/shm/danaus-*")), "nothing of it is left in the machine's folders"
        lab.crash("host1")
        lab.start("host1")
        wait(lambda: log.read_text().count(words) == 2, f"{words} again")


def test_the_controller_cannot_crash(fresh):
    with pytest.raises(ConfigError, match="name a host"):
        fresh.crash(CONTROLLER)


def test_an_agent_that_ends_at_once_is_an_error_with_its_words(tmp_path):
    agent = (sys.executable, "-c", "import sys; print('no such thing {port}'); sys.exit(3)")
    with pytest.raises(SupervisionError, match=r"(?s)host1 is gone: exit code 3.*no such thing"):
        Lab(hosts=1, folder=tmp_path, agent=agent).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_down_leaves_nothing_and_labs_stand_side_by_side(tmp_path: Path) -> None:
    before = tables()
    with Lab(hosts=1, folder=tmp_path) as one, Lab(hosts=1, folder=tmp_path) as two:
        assert one.address("host1") != two.address("host1")
        for each in (one, two):
            each.link("host1", Link(delay_s=0.01, loss=0.1))
            each.cut("host1", CONTROLLER)
        pids = [one.pid("host1"), one.pid("switch")]
        namespaces = set().union(*(own(pid, os.getpid()) for pid in pids if pid is not None))
        assert left_behind(tmp_path, one.name), "this check would find something"
        one.down()
        assert not users_of(namespaces)
        assert two.status().problems == ()
    with pytest.raises(ConfigError, match="there is no lab"):
        one.status()
    assert tables() == before
    assert left_behind(tmp_path, one.name) == left_behind(tmp_path, two.name) == []
    assert not one.down()
