"""H-3's ground: siblings are exchanged under a living, sharded module (FSDP2, two processes)."""

import gc
import os
import queue
import select
import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tests.procs.collectives.shard_process import SIZE, batch, network

from danaus.collectives.fingerprint import fingerprint
from danaus.collectives.shard_group import ShardGroup
from danaus.collectives.store import WireStore
from danaus.core.errors import ExchangeAborted, PeerLost
from danaus.testing.groups import Member, together
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.store import StoreThread
from danaus.wire.store_client import StoreClient

SCRIPT = Path(__file__).parent / "shard_process.py"
SOURCE = Path(__file__).parents[3] / "src"


class Rank:
    """``shard_process.py`` under test."""

    def __init__(self, secret_path, address, rank):
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, secret_path, str(address), str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def order(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def answer(self):
        assert select.select([self.process.stdout], [], [], 40)[0]
        return self.process.stdout.readline().split()

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def store(tmp_path):
    secret = Secret.create(tmp_path / "secret")
    thread = StoreThread(Address.unix(tmp_path / "store"), secret)
    yield thread, secret, tmp_path / "secret"
    thread.close()


@pytest.fixture
def ranks(store):
    """Return a function that starts ranks."""
    thread, _, secret_path = store
    started = []

    def start(*places):
        new = [Rank(secret_path, thread.address, place) for place in places]
        started.extend(new)
        assert [rank.answer() for rank in new] == [["ready"]] * len(new)
        return new

    yield start
    for rank in started:
        rank.end()


def all_do(ranks, command):
    for rank in ranks:
        rank.order(command)
    return [rank.answer()[-1] for rank in ranks]


def expected_fingerprints():
    """Return what each rank's shards must be after one step, by plain torch."""
    net = network()
    total = [torch.zeros_like(p) for p in net.parameters()]
    for rank in range(SIZE):
        net.zero_grad()
        net(batch(rank)).square().sum().backward()
        for add_to, parameter in zip(total, net.parameters(), strict=True):
            add_to += parameter.grad
    for parameter, summed in zip(net.parameters(), total, strict=True):
        parameter.grad = summed
    torch.optim.SGD(net.parameters(), lr=0.5).step()
    return [
        fingerprint({name: p.detach().chunk(SIZE)[rank] for name, p in net.named_parameters()})
        for rank in range(SIZE)
    ]


@pytest.mark.timeout(120)
def test_a_dead_sibling_is_exchanged_and_the_bits_are_those_of_plain_torch(ranks):
    first, second = ranks(0, 1)
    assert all_do([first, second], "meet 1") == ["None"] * 2
    assert all_do([first, second], "gradient") == ["None"] * 2
    norms = all_do([first, second], "norm")
    assert norms[0] == norms[1]
    first.order("gradient")
    second.process.kill()
    assert first.answer() == ["gradient", "PeerLost"]
    assert all_do([first], "gradient") == ["ExchangeAborted"]
    (third,) = ranks(1)
    assert all_do([first, third], "meet 2") == ["None"] * 2
    assert all_do([first, third], "gradient") == ["None"] * 2
    assert all_do([first, third], "apply") == expected_fingerprints()


def test_a_rank_says_that_it_waits_until_a_collective_is_over_or_its_sibling_is_lost(store):
    thread, secret, _ = store
    said = queue.SimpleQueue()
    clients = [StoreClient(thread.address, secret) for _ in range(2)]
    first, second = ShardGroup(0, 2, on_wait=said.put), ShardGroup(1, 2)

    def meet(group, client):
        group.configure(WireStore(client, prefix="w/"), "1", limit_s=20.0)

    together(*[partial(meet, *each) for each in zip((first, second), clients, strict=True)])
    assert said.empty()
    waiting = Member(first.barrier)
    assert said.get(timeout=20.0)
    second.barrier()
    assert not isinstance(waiting.outcome(), BaseException)
    assert not said.get(timeout=20.0)
    waiting = Member(first.barrier)
    assert said.get(timeout=20.0)
    second.dismiss("it is lost")
    gc.collect()
    assert isinstance(waiting.outcome(), PeerLost)
    assert not said.get(timeout=20.0)
    assert said.empty()
    for client in clients:
        client.close()


def test_a_group_without_members_says_so():
    group = ShardGroup(0, 2)
    with pytest.raises(ExchangeAborted, match="not been configured"):
        group.allreduce([torch.ones(1)])


def test_a_torch_store_over_the_wire(store):
    thread, secret, _ = store
    client = StoreClient(thread.address, secret)
    mine = WireStore(client, prefix="a/", limit_s=20.0)
    other = WireStore(client, prefix="b/")
    mine.set("k", "value")
    mine.set("bytes", b"\0\xff")
    assert (mine.get("k"), mine.get("bytes")) == (b"value", b"\0\xff")
    assert mine.add("n", 2) + mine.add("n", 3) == 7
    assert mine.check(["k", "n"])
    assert not other.check(["k"])
    assert mine.compare_set("k", "value", "new") == b"new"
    mine.append("k", "er")
    assert mine.get("k") == b"newer"
    assert mine.delete_key("k")
    assert not mine.check(["k"])
    assert mine.num_keys() == 2
    waiting = Member(lambda: mine.get("late"))
    mine.set("late", "here")
    assert waiting.outcome() == b"here"
    prefixed = dist.PrefixStore("p", mine)
    prefixed.set("k", "inner")
    assert prefixed.get("k") == b"inner"
    with pytest.raises(dist.DistStoreError):
        mine.wait(["never"], timedelta(seconds=0.01))
    client.close()
