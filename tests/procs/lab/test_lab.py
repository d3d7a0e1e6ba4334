"""A lab's hosts reach each other, until they are cut, slowed or crashed; nothing stays of it.

Frames are counted: what was dropped by the switch's counters, what came by the receiver.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.procs.lab.lab_parts import (
    Datagrams,
    connected,
    left_behind,
    own,
    quiet,
    tables,
    users_of,
    wait,
)

from danaus.actor.procfs import children_of
from danaus.app.lab_links import shaping
from danaus.app.lab_tools import carry_out
from danaus.core.errors import ConfigError, SupervisionError
from danaus.testing.hosts import Watched
from danaus.testing.lab import CONTROLLER, Lab, Link, host_agent

_ECHO = (
    "import socket, sys\n"
    "listener = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
    "while True:\n"
    "    with listener.accept()[0] as peer:\n"
    "        while data := peer.recv(4096):\n"
    "            peer.sendall(socket.gethostname().encode() + b' ' + data)\n"
)
ECHO = (sys.executable, "-c", _ECHO, "{address}", "{port}")
MANY = range(200)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(hosts=3, folder=tmp_path_factory.mktemp("labs"), networks=2, agent=ECHO) as standing:
        yield standing


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Lab]:
    """Return a lab of the test's own: the processes of hosts that it starts are its own too."""
    with Lab(hosts=3, folder=tmp_path, agent=ECHO) as own_lab:
        yield own_lab


@pytest.fixture(autouse=True)
def _healed(lab: Lab) -> Iterator[None]:
    yield
    lab.heal()


@pytest.mark.parametrize("start", ["host1", CONTROLLER])
def test_hosts_and_the_controller_reach_an_agent_over_tcp(lab, start):
    with lab.socket(start) as client:
        client.settimeout(20)
        client.connect((lab.address("host2"), 7200))
        client.sendall(b"hello")
        assert client.recv(64) == b"host2 hello"


@pytest.mark.parametrize("network", [0, 1])
@pytest.mark.parametrize("ipv6", [False, True])
def test_each_network_has_both_addresses(lab, network, ipv6):
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    with lab.socket("host2", family=family) as listener, lab.socket("host1", family=family) as one:
        for each in (listener, one):
            each.settimeout(20)
        listener.bind((lab.address("host2", network, ipv6=ipv6), 0))
        listener.listen()
        one.connect(listener.getsockname())
        peer, address = listener.accept()
        peer.close()
        assert address[0] == lab.address("host1", network, ipv6=ipv6)


def test_a_host_has_its_own_name_processes_and_knowledge_of_the_others(lab):
    script = "import os, socket; print(os.getppid(), socket.gethostname(), "
    script += "socket.gethostbyname('host3'), sum(n.isdigit() for n in os.listdir('/proc')))"
    with lab.popen("host2", [sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=20)
    # Its first process, its agent and this script.
    assert out.decode().split() == ["0", "host2", lab.address("host3"), "3"]


def test_memory_that_is_shared_is_shared_inside_a_host_only(lab):
    with lab.popen("host1", ["touch", f"/dev/shm/{lab.name}"]) as process:
        assert process.wait(20) == 0
    for host, code in (("host1", 0), ("host2", 1), (CONTROLLER, 1)):
        with lab.popen(host, ["test", "-e", f"/dev/shm/{lab.name}"]) as process:
            assert process.wait(20) == code


def test_a_cut_one_way_lets_frames_through_the_other_way(lab):
    lab.cut("host1", "host2", one_way=True)
    with Datagrams(lab, "host1", "host2") as there, Datagrams(lab, "host2", "host1") as back:
        there.send(*MANY)
        back.send(*MANY)
        wait(lambda: lab.dropped("cut host1 host2") == len(MANY), "each frame to be dropped")
        wait(lambda: len(back.read()) == len(MANY), "each frame the other way")
        assert there.read() == []
        lab.heal("host1", "host2")
        there.send(1)
        wait(lambda: there.read() == [1], "a frame after healing")


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_cut_is_between_two_only(lab, ipv6):
    lab.cut("host1", "host2")
    with (
        Datagrams(lab, "host2", "host1", ipv6=ipv6) as cut,
        Datagrams(lab, "host1", "host3", ipv6=ipv6) as other,
        Datagrams(lab, CONTROLLER, "host1", ipv6=ipv6) as ours,
    ):
        for each in (cut, other, ours):
            each.send(*MANY)
        wait(lambda: lab.dropped("cut host2 host1") == len(MANY), "each frame to be dropped")
        wait(lambda: len(other.read()) == len(ours.read()) == len(MANY), "the others' frames")
        assert cut.read() == []


def test_a_cut_from_everybody_is_from_the_controller_too(lab):
    lab.cut("host1")
    with Datagrams(lab, CONTROLLER, "host1") as ours, Datagrams(lab, "host1", "host3") as theirs:
        ours.send(*MANY)
        theirs.send(*MANY)
        wait(lambda: lab.dropped("cut controller host1") == len(MANY), "frames to be dropped")
        wait(lambda: lab.dropped("cut host1 host3") == len(MANY), "frames to be dropped")
        assert ours.read() == theirs.read() == []


def test_a_cut_stalls_a_connection_and_healing_resumes_it(lab):
    client, server = connected(lab, "host1", "host2")
    with client, server:
        lab.cut("host1", "host2")
        client.sendall(b"there")
        server.sendall(b"back")
        for rule in ("cut host1 host2", "cut host2 host1"):
            wait(lambda rule=rule: lab.dropped(rule) >= 1, "the frames to be dropped")
        assert quiet(client)
        assert quiet(server)
        lab.heal("host1", "host2")
        assert server.recv(64) == b"there"
        assert client.recv(64) == b"back"


def test_a_share_of_the_frames_is_lost(lab):
    lab.link("host1", Link(loss=0.5))
    with Datagrams(lab, "host1", "host2") as there, Datagrams(lab, "host2", "host1") as back:
        for frames, rule in ((there, "lost from host1"), (back, "lost to host1")):
            frames.send(*MANY)
            wait(
                lambda f=frames, r=rule: len(f.read()) + lab.dropped(r) == len(MANY),
                "each frame to come or to be lost",
            )
            assert 0 < len(frames.got) < len(MANY)
            assert frames.got == sorted(frames.got)


@pytest.mark.parametrize(
    "link", [Link(delay_s=30.0), Link(delay_s=30.0, jitter_s=9.0), Link(rate_mbit=0.05)],
    ids=["delay", "jitter", "rate"],
)  # fmt: skip
def test_a_slow_way_is_overtaken_by_a_straight_one(lab, link):
    lab.link("host1", link)
    with Datagrams(lab, "host1", "host3") as slow, Datagrams(lab, "host2", "host3") as straight:
        slow.send(*range(600))
        straight.send(1)
        wait(lambda: straight.read() == [1], "the frame of the straight way")
        overtaken = 600 - len(slow.read())
        assert overtaken > 0
        lab.heal()


def test_a_slow_way_loses_nothing_and_keeps_the_order(lab):
    # The kernel's own jitter turns frames round.
    lab.link("host1", Link(delay_s=0.05, jitter_s=0.0 if "netem" in lab.kernel else 0.04))
    with Datagrams(lab, "host1", "host2") as there, Datagrams(lab, "host2", "host1") as back:
        for frames in (there, back):
            frames.send(*MANY)
            wait(lambda f=frames: len(f.read()) == len(MANY), "each frame")
            assert frames.got == list(MANY)


def test_the_controller_s_way_can_be_slow_too(lab):
    for link in (Link(delay_s=0.05, loss=0.5), Link(rate_mbit=5)):
        lab.link(CONTROLLER, link)
        with Datagrams(lab, CONTROLLER, "host2") as frames:
            frames.send(*MANY)
            wait(
                lambda f=frames: len(f.read()) + lab.dropped("lost from controller") == len(MANY),
                "each frame to come or to be lost",
            )


def test_a_connection_lives_through_a_change_of_its_way(lab):
    client, server = connected(lab, "host1", "host2")
    with client, server:
        for link in (Link(delay_s=0.02), Link(rate_mbit=5), None):
            lab.link("host1", link)
            client.sendall(b"x" * 100_000)
            left = 100_000
            while left:
                left -= len(server.recv(65536))


def test_what_tc_is_told_is_what_it_understands(lab):
    """Where the kernel has no netem, tc still reads the line, and the kernel refuses the kind."""
    link = Link(delay_s=0.02, jitter_s=0.005, rate_mbit=10)
    command = ("tc", "qdisc", "add", "dev", "lo", *shaping(link, {"netem"}).qdisc)
    pid = lab.pid("host3")
    if "netem" in lab.kernel:
        carry_out(command, pid=pid)
        carry_out(("tc", "qdisc", "del", "dev", "lo", "root"), pid=pid)
        return
    with pytest.raises(ConfigError, match="qdisc kind is unknown"):
        carry_out(command, pid=pid)


def _relays(lab: Lab) -> list[int]:
    switch = lab.pid("switch")
    assert switch is not None
    return children_of(switch)


def test_the_end_of_a_relay_is_told_and_mended_by_a_new_one(lab):
    if "netem" in lab.kernel:
        pytest.skip("this kernel has netem: there is no relay")
    lab.link("host1", Link(delay_s=0.01))
    one, two = _relays(lab)
    os.kill(one, signal.SIGKILL)
    wait(lambda: bool(lab.status().problems), "its end to be told")
    (problem,) = lab.status().problems
    assert "relay-host1" in problem
    assert "SIGKILL" in problem
    lab.link("host1", Link(delay_s=0.01))
    assert lab.status().problems == ()
    assert two not in _relays(lab)
    with Datagrams(lab, "host1", "host2") as frames:
        frames.send(1)
        wait(lambda: frames.read() == [1], "a frame over the new relay")


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
    test_hosts_and_the_controller_reach_an_agent_over_tcp(fresh, "host1")


def _inside(lab: Lab, host: str) -> list[str]:
    return ["nsenter", f"--target={lab.pid(host)}", "--mount", "--uts", "--ipc", "--net", "--pid"]


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
    test_hosts_and_the_controller_reach_an_agent_over_tcp(fresh, "host1")


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
        lab.crash("host1")
        lab.start("host1")
        wait(lambda: log.read_text().count(words) == 2, f"{words} again")


def test_the_controller_cannot_crash(lab):
    with pytest.raises(ConfigError, match="name a host"):
        lab.crash(CONTROLLER)


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
