"""Processes and threads meet in a store over authenticated connections (W-5)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.procs.wire.harness import Relay, Run

from danaus.core.errors import (
    AddressRefused,
    ChannelClosed,
    ConfigError,
    DeadlinePassed,
    HandshakeRefused,
)
from danaus.wire.address import Address
from danaus.wire.channel import dial
from danaus.wire.secret import Secret
from danaus.wire.store import StoreThread, serve_store
from danaus.wire.store_client import StoreClient

LOOPBACK = Address.tcp("127.0.0.1", 0)


@pytest.fixture
def store(address: Address, secret: Secret) -> Iterator[StoreThread]:
    thread = StoreThread(address, secret)
    yield thread
    thread.close()


@pytest.fixture
def client(store: StoreThread, secret: Secret) -> Iterator[StoreClient]:
    found = StoreClient(store.address, secret, limit_s=10.0)
    yield found
    found.close()


def test_every_request_is_answered(client: StoreClient) -> None:
    client.set("k", b"\0\xff")
    assert client.get("k") == b"\0\xff"
    assert client.add("n", 2) == 2
    assert client.add("n", 3) == 5
    assert client.get("n") == b"5"
    client.append("k", b"!")
    assert client.get("k") == b"\0\xff!"
    assert client.compare_set("c", b"", b"new") == b"new"
    assert client.check(["k", "n", "c"])
    assert not client.check(["k", "missing"])
    assert client.num_keys() == 3
    client.wait(["k", "n"])
    assert client.delete("k")
    assert not client.delete("k")
    assert client.delete("", is_prefix=True)
    assert client.num_keys() == 0
    client.set("text", b"abc")
    with pytest.raises(ConfigError, match="no number"):
        client.add("text", 1)


def test_threads_wait_for_each_other(client: StoreClient) -> None:
    with ThreadPoolExecutor(20) as pool:
        values = [pool.submit(client.get, f"key {n}") for n in range(10)]
        waits = pool.submit(client.wait, [f"key {n}" for n in range(10)])
        for n in range(10):
            client.set(f"key {n}", b"%d" % n)
        assert [value.result() for value in values] == [b"%d" % n for n in range(10)]
        waits.result()
        totals = [pool.submit(client.add, "total", 1) for _ in range(100)]
        assert sorted(each.result() for each in totals) == list(range(1, 101))


def test_waiting_has_an_end(client: StoreClient) -> None:
    for wait in (client.get, lambda key, limit_s: client.wait([key], limit_s=limit_s)):
        with pytest.raises(DeadlinePassed):
            wait("never", limit_s=0.05)
    client.set("never", b"after all")
    assert client.get("never") == b"after all"


def test_closing_a_client_releases_its_threads(client: StoreClient) -> None:
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(client.get, "never")
        while not client._busy:
            threading.Event().wait(0.001)
        client.close()
        with pytest.raises(ChannelClosed):
            waits.result()
    with pytest.raises(ChannelClosed):
        client.set("k", b"")


def test_strangers_are_not_served(store: StoreThread) -> None:
    stranger = StoreClient(store.address, Secret.generate(), limit_s=5.0)
    with pytest.raises(HandshakeRefused):
        stranger.get("k")
    stranger.close()


def test_a_server_that_is_gone_is_told(store: StoreThread, client: StoreClient) -> None:
    client.set("k", b"v")
    store.close()
    with pytest.raises((DeadlinePassed, AddressRefused)):
        client.get("k", limit_s=0.1)


def test_a_port_in_use_is_told(store: StoreThread, secret: Secret) -> None:
    with pytest.raises(AddressRefused):
        StoreThread(store.address, secret)


def test_a_request_that_is_repeated_counts_once(run: Run, secret: Secret) -> None:
    """Cut the connection at every byte of an addition: it is still one addition."""

    async def one(server: Address, cut: int) -> None:
        async with Relay(server, [cut], abrupt=True) as relay:
            client = StoreClient(relay.address, secret, limit_s=20.0)
            assert await asyncio.to_thread(client.add, f"n{cut}", 1) == 1
            client.close()

    async def work() -> None:
        server = await serve_store(LOOPBACK, secret)
        for start in range(0, 320, 32):
            cuts = range(start, start + 32, 4)
            await asyncio.gather(*(one(server.address, cut) for cut in cuts))
        await server.close()
        # The threads of ``to_thread`` are the loop's: it ends them.
        await asyncio.get_running_loop().shutdown_default_executor()

    run(work())


def test_a_peer_that_is_no_client_is_shown_out(
    run: Run, secret: Secret, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        server = await serve_store(LOOPBACK, secret)
        for hello, words in ((b"short", [b""]), (b"x" * 16, [b"\xff"]), (b"x" * 16, [b"", b""])):
            channel = await dial(server.address, secret, hello)
            channel.push(words)
            with pytest.raises(ChannelClosed):
                await channel.recv()
            channel.close()
        await server.close()

    run(work())
    assert len([each for each in caplog.records if each.name == "danaus.wire"]) == 3
