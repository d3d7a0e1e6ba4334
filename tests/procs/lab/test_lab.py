"""A lab's hosts reach each other, until they are cut or slowed.

Frames are counted: what was dropped by the switch's counters, what came by the receiver.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.procs.lab.lab_parts import (
    ECHO,
    MANY,
    Datagrams,
    connected,
    echoed,
    quiet,
    wait,
)

from danaus.actor.procfs import children_of
from danaus.app.lab_links import shaping
from danaus.app.lab_tools import carry_out
from danaus.core.errors import ConfigError
from danaus.testing.lab import CONTROLLER, Lab, Link


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(hosts=3, folder=tmp_path_factory.mktemp("labs"), networks=2, agent=ECHO) as standing:
        yield standing


@pytest.fixture(autouse=True)
def _healed(lab: Lab) -> Iterator[None]:
    yield
    lab.heal()


@pytest.mark.parametrize("start", ["host1", CONTROLLER])
def test_hosts_and_the_controller_reach_an_agent_over_tcp(lab, start):
    assert echoed(lab, start, "host2") == b"host2 hello"


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
        wait(lambda: lab.dropped("cut host1 host2") >= len(MANY), "each frame to be dropped")
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
        wait(lambda: lab.dropped("cut host2 host1") >= len(MANY), "each frame to be dropped")
        wait(lambda: len(other.read()) == len(ours.read()) == len(MANY), "the others' frames")
        assert cut.read() == []


def test_a_cut_from_everybody_is_from_the_controller_too(lab):
    lab.cut("host1")
    with Datagrams(lab, CONTROLLER, "host1") as ours, Datagrams(lab, "host1", "host3") as theirs:
        ours.send(*MANY)
        theirs.send(*MANY)
        wait(lambda: lab.dropped("cut controller host1") >= len(MANY), "frames to be dropped")
        wait(lambda: lab.dropped("cut host1 host3") >= len(MANY), "frames to be dropped")
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
                lambda f=frames, r=rule: len(f.read()) + lab.dropped(r) >= len(MANY),
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
                lambda f=frames: len(f.read()) + lab.dropped("lost from controller") >= len(MANY),
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
