"""H-2 over real sockets: striped, checked, resumed."""

import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from tests.procs.ft.transfer_parts import (
    MIB,
    DonorSite,
    Relay,
    addresses,
    empty_like,
    fetch,
    num_bytes,
    same,
    state,
)

from danaus.core.errors import (
    DeadlinePassed,
    ExchangeAborted,
    StaleQuorum,
    TransferFailed,
)
from danaus.ft.donor import MOST_CHUNKS
from danaus.ft.manifest import Wanted
from danaus.ft.snapshot import Snapshot
from danaus.ft.transfer import Fetch
from danaus.testing.groups import LIMIT_S, Member, soon
from danaus.wire.address import Address
from danaus.wire.secret import Secret

SCRIPT = Path(__file__).parent / "donor_process.py"
SOURCE = Path(__file__).parents[3] / "src"


@pytest.mark.parametrize("num_donors", [1, 3])
def test_a_state_arrives_whole_from_all_donors(donors, secret, num_donors):
    named = state(num_mib=24)
    named["half"] = torch.randn(7, 3).to(torch.bfloat16)
    named["empty"] = torch.empty(0)
    sites = donors(num_donors)
    # One whose handshake takes long finds nothing left to give unless the others wait for it.
    all_asked = threading.Barrier(num_donors)
    for site in sites:
        published = site.server.publish(
            5, named, note="2.1", fingerprint="f", on_served=lambda: all_asked.wait(LIMIT_S)
        )
        assert (published.step, published.num_bytes) == (5, num_bytes(named))
        assert published.copied
    into, seen = empty_like(named), []
    report = fetch(addresses(sites), secret, 5, into=into, deadline=soon(), on_bytes=seen.append)
    assert same(into, named)
    assert (report.step, report.note, report.fingerprint) == (5, "2.1", "f")
    assert report.num_bytes == sum(report.bytes_by_donor.values()) == sum(seen) == num_bytes(named)
    assert all(report.bytes_by_donor.values())
    assert not report.tried
    for site in sites:
        site.close()
    assert sum(site.server.num_bytes_served for site in sites) == report.num_wire_bytes


def test_the_snapshot_is_that_of_the_step_while_training_goes_on(donors, secret):
    (site,) = donors(1)
    live = state(num_mib=8)
    expect = {name: tensor.clone() for name, tensor in live.items()}
    site.server.publish(5, live)
    into = empty_like(live)

    def train(_):
        for tensor in live.values():
            tensor.add_(1.0)

    fetch(addresses([site]), secret, 5, into=into, deadline=soon(), on_bytes=train)
    assert same(into, expect)


def test_without_room_the_tensors_are_lent(donors, secret):
    (site,) = donors(1, room_bytes=MIB)
    named = state(num_mib=4)
    assert not site.server.publish(5, named).copied
    into = empty_like(named)
    fetch(addresses([site]), secret, 5, into=into, deadline=soon())
    assert same(into, named)
    site.server.withdraw(5)


def test_a_learner_may_come_before_the_snapshot(donors, secret):
    (site,) = donors(1)
    named = state()
    into = empty_like(named)
    member = Member(lambda: fetch(addresses([site]), secret, 5, into=into, deadline=soon()))
    assert not member.ended_within(0.05)
    site.server.publish(5, named)
    assert member.outcome().step == 5
    assert same(into, named)


def test_donors_that_have_left_the_step_behind_say_so(donors, secret):
    sites = donors(2)
    named = state()
    for site in sites:
        site.server.publish(5, named)
        site.server.publish(6, named)
        site.server.withdraw(5)
    with pytest.raises(StaleQuorum, match="step 6"):
        fetch(addresses(sites), secret, 5, into=empty_like(named), deadline=soon())


def test_one_donor_at_another_step_is_done_without(donors, secret):
    sites = donors(2)
    named = state(num_mib=4)
    sites[0].server.publish(6, state(seed=2))
    sites[1].server.publish(5, named)
    into = empty_like(named)
    report = fetch(addresses(sites), secret, 5, into=into, deadline=soon())
    assert same(into, named)
    assert report.bytes_by_donor == {"d0": 0, "d1": num_bytes(named)}


def test_donors_that_disagree_are_not_mixed(donors, secret):
    sites = donors(2)
    named = state(num_mib=8)
    sites[0].server.publish(5, named, fingerprint="one")
    sites[1].server.publish(5, state(num_mib=8, seed=2), fingerprint="other")
    into = empty_like(named)
    report = fetch(addresses(sites), secret, 5, into=into, deadline=soon())
    expect = named if report.fingerprint == "one" else state(num_mib=8, seed=2)
    assert same(into, expect)
    assert sorted(report.bytes_by_donor.values()) == [0, num_bytes(named)]


def test_a_state_of_another_model_is_refused(donors, secret):
    (site,) = donors(1)
    site.server.publish(5, state())
    into = empty_like(state()) | {"weight": torch.zeros(3)}
    with pytest.raises(TransferFailed, match=r"weight is float32\[262144\], not float32\[3\]"):
        fetch(addresses([site]), secret, 5, into=into, deadline=soon())


@pytest.mark.parametrize("at", [3 * MIB, 3 * MIB + 12345, 9 * MIB])
def test_a_flipped_byte_is_noticed_and_fetched_again(donors, secret, at):
    (site,) = donors(1)
    named = state(num_mib=12)
    site.server.publish(5, named)
    relay = Relay(site.address, flip_at=[at])
    into = empty_like(named)
    report = fetch({"d": relay.address}, secret, 5, into=into, deadline=soon())
    relay.close()
    assert same(into, named)
    assert relay.num_connections == 2
    assert "damaged" in report.tried["d"]


def test_a_broken_connection_is_resumed_where_it_ended(donors, secret):
    (site,) = donors(1)
    named = state(num_mib=12)
    site.server.publish(5, named)
    relay = Relay(site.address, end_at=9 * MIB)
    into = empty_like(named)
    report = fetch({"d": relay.address}, secret, 5, into=into, deadline=soon())
    relay.close()
    assert same(into, named)
    assert relay.num_connections == 2
    assert report.num_wire_bytes < num_bytes(named) + 6 * MIB  # not from the start again


def test_a_connection_that_breaks_every_time_is_given_up(donors, secret):
    (site,) = donors(1)
    named = {"weight": state()["weight"]}  # one that comes in large chunks only
    site.server.publish(5, named)
    relay = Relay(site.address, end_at=3000)  # after the handshake, before a chunk
    with pytest.raises(TransferFailed) as failed:
        fetch({"d": relay.address}, secret, 5, into=empty_like(named), deadline=soon())
    relay.close()
    assert relay.num_connections == 3
    assert list(failed.value.tried) == ["d"]


def test_withdrawing_ends_a_transfer_and_lets_the_memory_go(donors, secret):
    (site,) = donors(1)
    named = state(num_mib=32)
    site.server.publish(5, named)
    withdrawn = threading.Event()

    def withdraw(_):
        if not withdrawn.is_set():
            withdrawn.set()
            site.server.publish(6, state())
            site.server.withdraw(5)

    with pytest.raises(StaleQuorum):
        fetch(
            *(addresses([site]), secret, 5),
            into=empty_like(named),
            deadline=soon(),
            on_bytes=withdraw,
        )


def test_whoever_has_a_closed_server_may_go_on_using_it(donors, secret):
    (site,) = donors(1)
    site.server.publish(5, state())
    site.close()
    site.server.publish(6, state())
    site.server.withdraw(5, 6)
    site.close()


def test_a_donor_is_asked_for_more_before_all_that_it_sent_is_taken(donors, secret, monkeypatch):
    (site,) = donors(1)
    named = {f"{n:03}": torch.full((8,), float(n)) for n in range(12 * MOST_CHUNKS)}
    site.server.publish(5, named)
    both, more = threading.Event(), threading.Event()
    num_asked = num_taken = 0
    chunk_bytes = Snapshot.chunk_bytes

    def serve(snapshot, index):
        nonlocal num_asked
        num_asked += 1
        if num_asked >= 2 * MOST_CHUNKS:
            (both if num_asked == 2 * MOST_CHUNKS else more).set()
        return chunk_bytes(snapshot, index)

    def take(_):
        nonlocal num_taken
        num_taken += 1
        if num_taken == 1:
            assert both.wait(20)
        elif num_taken == 2 * MOST_CHUNKS:
            assert more.wait(20), "the donor has nothing to do"

    monkeypatch.setattr(Snapshot, "chunk_bytes", serve)
    into = empty_like(named)
    fetch(addresses([site]), secret, 5, into=into, deadline=soon(60), on_bytes=take)
    assert same(into, named)


def test_serving_is_told_once_for_each_learner(donors, secret):
    (site,) = donors(1)
    served = []
    site.server.publish(5, state(num_mib=3), on_served=lambda: served.append(1))
    for _ in range(2):
        fetch(addresses([site]), secret, 5, into=empty_like(state(num_mib=3)), deadline=soon())
    assert served == [1, 1]


def test_cancel_and_deadline_end_the_wait(donors, secret):
    (site,) = donors(1)
    with pytest.raises(DeadlinePassed):
        fetch(addresses([site]), secret, 5, into=empty_like(state()), deadline=soon(0.05))
    waiting = Fetch(addresses([site]), secret, Wanted(5), into=empty_like(state()))
    member = Member(lambda: waiting.run(soon()))
    assert not member.ended_within(0.05)
    waiting.cancel("the epoch is over")
    assert isinstance(member.outcome(), ExchangeAborted)


def test_a_stranger_gets_nothing(donors, secret):
    (site,) = donors(1)
    site.server.publish(5, state())
    with pytest.raises(TransferFailed, match="secret"):
        fetch(
            *(addresses([site]), Secret.generate(), 5),
            into=empty_like(state()),
            deadline=soon(),
        )
    assert site.server.num_bytes_served == 0


def test_nobody_there(secret, tmp_path):
    with pytest.raises(TransferFailed, match="d0"):
        fetch(
            *({"d0": Address.unix(tmp_path / "none")}, secret, 5),
            into=empty_like(state()),
            deadline=soon(),
        )
    with pytest.raises(TransferFailed, match="tried none"):
        fetch({}, secret, 5, into=empty_like(state()), deadline=soon())


class DonorProcess:
    """``donor_process.py`` under test."""

    def __init__(self, secret_path, address, num_mib):
        self.address = address
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, secret_path, str(address), "5", str(num_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def ready(self):
        assert select.select([self.process.stdout], [], [], 30)[0]
        assert self.process.stdout.readline().strip() == "serving"

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("survivors", [0, 1])
def test_a_donor_killed_while_it_serves(tmp_path, survivors):
    secret_path = tmp_path / "secret"
    shared = Secret.create(secret_path)
    doomed = DonorProcess(secret_path, Address.unix(tmp_path / "doomed"), num_mib=64)
    named = state(num_mib=64)
    others = [DonorSite(Address.unix(tmp_path / "other"), shared) for _ in range(survivors)]
    relays = [Relay(other.address, is_open=False) for other in others]

    def kill(_):
        doomed.process.kill()
        for relay in relays:
            relay.opened.set()

    try:
        doomed.ready()
        for other in others:
            other.server.publish(5, named, note="1.4")
        into = empty_like(named)
        transfer = Fetch(
            {"doomed": doomed.address} | {f"d{n}": r.address for n, r in enumerate(relays)},
            shared,
            Wanted(5),
            into=into,
            on_bytes=kill,
        )
        if survivors:
            report = transfer.run(soon())
            assert same(into, named)
            assert all(report.bytes_by_donor.values()), "the first from one, the rest from another"
            assert "doomed" in report.tried
        else:
            with pytest.raises(TransferFailed, match="doomed"):
                transfer.run(soon())
    finally:
        doomed.end()
        for each in (*relays, *others):
            each.close()


def test_a_donor_that_falls_silent_is_done_without(donors, secret):
    """It describes its state and then serves no chunk."""
    sites = donors(2)
    named = state(num_mib=8)
    stop = threading.Event()

    def fall_silent():
        sites[1].server.publish(5, named)  # not before: it might be faster, and serve all
        stop.wait(10)

    sites[0].server.publish(5, named, on_served=fall_silent)
    into = empty_like(named)
    report = Fetch(addresses(sites), secret, Wanted(5), into=into, silence_limit_s=0.2).run(soon())
    assert same(into, named)
    assert "silent" in report.tried["d0"]
    stop.set()
