"""What only real sockets and real processes can show: Q-1, Q-5, W-2, W-3."""

import functools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from danaus.collectives.lane import HEADER_BYTES, Kind, Lane, Outgoing
from danaus.core.errors import (
    DeadlinePassed,
    ExchangeAborted,
    PeerLost,
    StaleQuorum,
)
from danaus.testing.groups import (
    Member,
    Site,
    form_all,
    member_names,
    plan_one_leaf_each,
    soon,
    together,
)
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.stream import Stream

SCRIPT = Path(__file__).parent / "member_process.py"
SOURCE = Path(__file__).parents[3] / "src"
NUM_ELEMENTS = 1_000_000


class PeerProcess:
    """``member_process.py`` under test."""

    def __init__(self, secret_path, epoch, me, members):
        self.process = subprocess.Popen(
            [
                *(sys.executable, SCRIPT, secret_path, epoch, me),
                *(f"{name}={address}" for name, address in members.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def expect(self, word):
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        assert ready
        assert self.process.stdout.readline().strip() == word

    def order(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def stop(self):
        """Stop it and wait until the kernel says so."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def with_process(site_kind, tmp_path):
    """Return this process's formed group and the other member, a process."""
    secret_path = tmp_path / "secret"
    site = Site(site_kind, tmp_path, Secret.create(secret_path))
    # The process has the later name: it dials, so that nobody needs to know its port.
    unix = site_kind == "unix"
    other = Address.unix(tmp_path / "other") if unix else Address.tcp("127.0.0.1", 0)
    names = member_names(2)
    members = {names[0]: site.address, names[1]: other}
    peer = PeerProcess(secret_path, "1.1", names[1], members)
    started = threading.Event()
    group = site.group(names[0], members, on_collective=lambda number: started.set())
    try:
        peer.expect("listening")
        group.form(soon())
        peer.expect("formed")
        yield group, peer, started
    finally:
        group.close()
        site.close()
        peer.end()


def reduction(group, num_rounds=1, num_elements=NUM_ELEMENTS):
    value, out = torch.ones(num_elements), torch.empty(num_elements)

    def call():
        for _ in range(num_rounds):
            group.reduce_tree(
                [value], out, plan=plan_one_leaf_each(2), subset=group.names, deadline=soon()
            )

    return call


EACH_ONCE = pytest.mark.parametrize(
    ("site_kind", "what"),
    [("unix", "reduce"), ("tcp", "vote"), ("tls", "reduce")],
    indirect=["site_kind"],
)


@pytest.mark.strict
@EACH_ONCE
def test_abort_releases_within_50_ms(with_process, what):
    """Q-5, also where the peer is stopped."""
    group, peer, started = with_process
    peer.stop()
    vote = functools.partial(group.exchange_small, b"vote", deadline=soon())
    member = Member(reduction(group) if what == "reduce" else vote)
    assert started.wait(10)
    group.abort("it hangs")
    assert member.ended_within(0.05)


@EACH_ONCE
def test_abort_releases_a_waiter_whose_peer_is_stopped(with_process, what):
    group, peer, started = with_process
    peer.stop()
    vote = functools.partial(group.exchange_small, b"vote", deadline=soon())
    member = Member(reduction(group) if what == "reduce" else vote)
    assert started.wait(10)
    group.abort("it hangs")
    assert isinstance(member.outcome(), ExchangeAborted)


@EACH_ONCE
def test_a_killed_peer_is_noticed_at_once(with_process, what):
    """Without an abort and long before the deadline: the kernel tells."""
    group, peer, _ = with_process
    peer.order(what)
    vote = functools.partial(group.exchange_small, b"vote", deadline=soon())

    def votes():
        while True:
            vote()

    member = Member(reduction(group, num_rounds=10**6) if what == "reduce" else votes)
    peer.expect("third round")
    peer.process.kill()
    ended = member.outcome()
    assert isinstance(ended, PeerLost)
    assert ended.peer == member_names(2)[1]


def test_a_member_of_an_ended_epoch_is_told_so(sites):
    first, second = sites(2)
    names = member_names(2)
    members = {names[0]: first.address, names[1]: second.address}
    new = first.group(names[0], members, epoch="1.10")
    old = second.group(names[1], members, epoch="1.9")
    with pytest.raises(StaleQuorum) as stale:
        old.form(soon())
    assert (stale.value.epoch, stale.value.current) == ("1.9", "1.10")
    old.close()
    new.close()


def test_an_early_dial_waits_for_a_late_group_and_a_stale_one_does_not(sites):
    """The dialler hears of the epoch first; a dial of the epoch before it is turned away."""
    first, second = sites(2)
    names = member_names(2)
    members = {names[0]: first.address, names[1]: second.address}
    stale = second.group(names[1], members, epoch="1.1")
    waiting = Member(lambda: stale.form(soon()))
    assert not waiting.ended_within(0.05)
    first_group = first.group(names[0], members, epoch="2.1")
    assert isinstance(waiting.outcome(), StaleQuorum)
    stale.close()
    second_group = second.group(names[1], members, epoch="2.1")
    together(lambda: first_group.form(soon()), lambda: second_group.form(soon()))
    first_group.close()
    second_group.close()


def test_an_epoch_never_goes_back(sites):
    site = sites(1)[0]
    site.group("a", {"a": site.address}, epoch="2.1").close()
    with pytest.raises(StaleQuorum):
        site.group("a", {"a": site.address}, epoch="1.7")


def test_another_incarnation_is_not_taken_for_this_one(sites):
    first, second = sites(2)
    mine = first.group("a/0#1", {"a/0#1": first.address, "b/0#0": second.address})
    theirs = second.group("b/0#0", {"a/0#0": first.address, "b/0#0": second.address})
    with pytest.raises(StaleQuorum):
        theirs.form(soon())
    theirs.close()
    mine.close()


@pytest.mark.parametrize("site_kind", ["unix", "tcp", "tls"], indirect=True)
def test_abort_ends_the_forming(sites):
    """One peer never dials, another accepts and says nothing."""
    first, second = sites(2)
    with socket.socket() as mute:
        mute.bind((first.address.host or "127.0.0.1", 0))
        mute.listen()
        members = {
            "a": Address.tcp(*mute.getsockname()),
            "b": first.address,
            "c": second.address,
        }
        group = first.group("b", members)
        member = Member(lambda: group.form(soon()))
        with mute.accept()[0]:
            group.abort("c died")
        assert isinstance(member.outcome(), ExchangeAborted)
        group.close()


def test_a_peer_that_is_gone_or_late_ends_the_forming(sites, site_kind, tmp_path):
    first, second = sites(2)
    names = member_names(2)
    members = {names[0]: second.address, names[1]: first.address}
    late = first.group(names[1], members)
    with pytest.raises(DeadlinePassed, match="a/0#0"):
        late.form(soon(0.05))
    late.close()
    second.close()
    gone = first.group(names[1], members, epoch="1.2")
    with pytest.raises(PeerLost):
        gone.form(soon())
    gone.close()


def test_a_peer_that_has_left_the_epoch_ends_the_forming(sites):
    first, second = sites(2)
    names = member_names(2)
    members = {names[0]: first.address, names[1]: second.address}
    leaving = first.group(names[0], members)
    early, late = second.group(names[1], members), second.group(names[1], members)
    forming = Member(lambda: early.form(soon()))
    assert not forming.ended_within(0.05)
    leaving.close()
    assert isinstance(forming.outcome(), PeerLost)
    with pytest.raises(PeerLost):
        late.form(soon())


def test_a_peer_without_the_secret_is_no_member(sites, site_kind, tmp_path):
    first = sites(1)[0]
    stranger = Site(site_kind, tmp_path, Secret.generate(), index=7)
    members = {"a": first.address, "b": stranger.address}
    theirs = stranger.group("b", members)
    with pytest.raises(PeerLost):
        theirs.form(soon())
    theirs.close()
    stranger.close()


def test_epochs_follow_each_other_over_one_listener(sites):
    made = sites(3)
    names = member_names(3)
    for n, members in enumerate((names, names[:2], names), 1):
        groups = form_all(made[: len(members)], members, epoch=f"1.{n}")
        got = together(
            *(functools.partial(g.exchange_small, b"x", deadline=soon()) for g in groups)
        )
        assert [sorted(each) for each in got] == [members] * len(members)
        together(*(group.close for group in groups))


def test_traffic_is_that_of_a_ring(sites):
    """T-4: whole subtrees cost 2 (n - 1) / n of the vector, each way."""
    names = member_names(4)
    groups = form_all(sites(4), names)
    num_elements = 400_000
    plan = plan_one_leaf_each(4)

    def call(group):
        out = torch.empty(num_elements)
        group.reduce_tree([torch.ones(num_elements)], out, plan=plan, subset=names, deadline=soon())

    together(*(functools.partial(call, group) for group in groups))
    ring = num_elements * 4 * 2 * 3 // 4
    for group in groups:
        assert ring * 0.98 <= group.num_bytes_sent <= ring * 1.02
        assert ring * 0.98 <= group.num_bytes_received <= ring * 1.02


class OneMessage:
    """An exchange that takes a single message."""

    def __init__(self):
        self.got = None

    def due(self, lane):
        return self.got is None

    def place(self, lane, header):
        self.buffer = bytearray(header.length)
        return memoryview(self.buffer)

    def take(self, lane, header):
        self.got = bytes(self.buffer)


@pytest.mark.parametrize("at", [0, 5, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 7])
def test_a_flipped_bit_on_the_way_ends_the_lane(at):
    near, far = socket.socketpair()
    sender = Lane("b", Stream(near))
    sender.send(Outgoing(Kind.SMALL, 0, 0, memoryview(b"the payload")))
    sender.push()
    data = bytearray(far.recv(1000))
    near2, far2 = socket.socketpair()
    receiver = Lane("a", Stream(far2))
    exchange = OneMessage()
    data[at] ^= 4
    near2.sendall(data)
    with pytest.raises(PeerLost, match="damaged"):
        receiver.pull(exchange)
    assert exchange.got is None
    for sock in (near, far, near2, far2):
        sock.close()


def test_a_message_of_another_exchange_ends_the_lane():
    near, far = socket.socketpair()
    sender, receiver = Lane("b", Stream(near)), Lane("a", Stream(far))
    sender.number = 7
    sender.send(Outgoing(Kind.SMALL, 0, 0, memoryview(b"late")))
    sender.push()
    with pytest.raises(PeerLost, match="belongs to 7 where 0 is due"):
        receiver.pull(OneMessage())
    sender.close()
    receiver.close()


def test_a_message_is_taken_in_any_portions():
    near, far = socket.socketpair()
    receiver, exchange = Lane("a", Stream(far)), OneMessage()
    other, other_far = socket.socketpair()
    sender = Lane("b", Stream(other))
    sender.send(Outgoing(Kind.SMALL, 0, 0, memoryview(b"the payload")))
    sender.push()
    for byte in other_far.recv(1000):
        assert exchange.got is None
        near.sendall(bytes([byte]))
        receiver.pull(exchange)
    assert exchange.got == b"the payload"
    for sock in (near, far, other, other_far):
        sock.close()
