"""Authenticated sockets for threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from danaus.core.clock import Deadline
from danaus.core.errors import (
    AddressRefused,
    ChannelClosed,
    DeadlinePassed,
    FrameDamaged,
    HandshakeRefused,
    MessageTooLarge,
)
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener, dial_peer, recv_frame, send_frame
from danaus.wire.channel import Channel, dial, listen
from danaus.wire.frame import Head, Kind, encode_head
from danaus.wire.handshake import Dialler
from danaus.wire.secret import Secret
from danaus.wire.stream import Stream


def soon() -> Deadline:
    return Deadline.after(10.0)


@pytest.fixture
def listener(address: Address, secret: Secret) -> Iterator[PeerListener]:
    found = PeerListener(address, secret, handshake_limit_s=0.5)
    yield found
    found.close()


@contextlib.contextmanager
def pair(listener: PeerListener, secret: Secret) -> Iterator[tuple[Stream, Stream]]:
    with (
        dial_peer(listener.address, secret, b"pair", deadline=soon()) as a,
        listener.take(b"pair", soon()) as b,
    ):
        yield a, b


def connect(address: Address) -> socket.socket:
    if address.scheme == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.path)
        return sock
    return socket.create_connection((address.host, address.port))


def test_frames_go_both_ways(listener: PeerListener, secret: Secret) -> None:
    with pair(listener, secret) as (a, b):
        send_frame(a, [b"one", b"", b"two"])
        send_frame(a, [])
        send_frame(b, [bytes(100)] * 100, deadline=soon())
        assert recv_frame(b) == [b"one", b"", b"two"]
        assert recv_frame(b, deadline=soon()) == []
        assert recv_frame(a) == [bytes(100)] * 100


def test_a_large_frame_is_received_in_place(listener: PeerListener, secret: Secret) -> None:
    payload = os.urandom(1 << 20) * 20
    into = bytearray(len(payload))

    def place(head: Head) -> list[bytearray]:
        assert head.lengths == (4, len(payload))
        return [bytearray(4), into]

    with pair(listener, secret) as (a, b), ThreadPoolExecutor() as pool:
        sending = pool.submit(send_frame, a, [b"head", memoryview(payload).cast("I")])
        assert recv_frame(b, deadline=soon(), place=place)[1] is into
        sending.result()
    assert into == payload


def test_sockets_are_claimed_by_their_hello(listener: PeerListener, secret: Secret) -> None:
    with contextlib.ExitStack() as stack:
        ours = {
            key: stack.enter_context(dial_peer(listener.address, secret, key, deadline=soon()))
            for key in (b"e1 a", b"e1 b", b"e2 a")
        }
        for key in (b"e2 a", b"e1 b", b"e1 a"):
            theirs = stack.enter_context(listener.take(key, soon()))
            send_frame(theirs, [key])
            assert recv_frame(ours[key], deadline=soon()) == [key]
        with pytest.raises(DeadlinePassed, match="e1 a"):
            listener.take(b"e1 a", Deadline.after(0.01))


def test_a_taker_waits_for_its_peer(listener: PeerListener, secret: Secret) -> None:
    with ThreadPoolExecutor() as pool:
        taking = pool.submit(listener.take, b"late", soon())
        with (
            dial_peer(listener.address, secret, b"late", deadline=soon()) as a,
            taking.result() as b,
        ):
            send_frame(b, [b"here"])
            assert recv_frame(a, deadline=soon()) == [b"here"]


def test_prefixes_go_to_callbacks(listener: PeerListener, secret: Secret) -> None:
    said: list[bytes] = []
    done = threading.Semaphore(0)

    def take(stream: Stream, hello: bytes) -> None:
        said.append(hello)
        stream.close()
        done.release()

    with dial_peer(listener.address, secret, b"xfer early", deadline=soon()) as early:
        assert early.is_open  # it waits unclaimed, or comes while we register: both are right
        listener.on_hello(b"xfer", take)
        assert done.acquire(timeout=10.0)
    listener.on_hello(b"xfer special", lambda stream, hello: take(stream, b"special"))
    for hello in (b"xfer 1", b"xfer special 2"):
        dial_peer(listener.address, secret, hello, deadline=soon()).close()
        assert done.acquire(timeout=10.0)
    assert said == [b"xfer early", b"xfer 1", b"special"]
    listener.on_hello(b"xfer", None)
    with dial_peer(listener.address, secret, b"xfer 3", deadline=soon()):
        listener.take(b"xfer 3", soon()).close()


def test_what_nobody_claims_is_closed(address: Address, secret: Secret) -> None:
    listener = PeerListener(address, secret, unclaimed_limit_s=0.05)
    sock = dial_peer(listener.address, secret, b"nobody's", deadline=soon())
    with sock, pytest.raises(ChannelClosed):
        recv_frame(sock, deadline=soon())
    listener.close()


def test_stale_ones_can_be_dropped(listener: PeerListener, secret: Secret) -> None:
    stale = dial_peer(listener.address, secret, b"e1 a", deadline=soon())
    fresh = dial_peer(listener.address, secret, b"e2 a", deadline=soon())
    with stale, fresh, listener.take(b"e2 a", soon()):  # so the earlier one has come as well
        assert listener.drop(b"e1") == 1
        with pytest.raises(ChannelClosed):
            recv_frame(stale, deadline=soon())


def test_the_wrong_secret_is_refused(listener: PeerListener, secret: Secret) -> None:
    with pytest.raises(HandshakeRefused, match="secret"):
        dial_peer(listener.address, Secret.generate(), deadline=soon())
    with pair(listener, secret):
        pass


def test_silent_and_babbling_peers_disturb_nobody(listener: PeerListener, secret: Secret) -> None:
    greeting = Dialler(secret).start()
    with contextlib.ExitStack() as stack:
        peers = []
        for words in (b"", greeting[:9], greeting, b"GET / HTTP/1.1\r\n", b"danausD1" * 30):
            peers.append(stack.enter_context(connect(listener.address)))
            peers[-1].sendall(words)
        with pair(listener, secret) as (a, b):
            send_frame(a, [b"served"])
            assert recv_frame(b, deadline=soon()) == [b"served"]
        for peer in peers:
            peer.settimeout(10.0)
            with contextlib.suppress(ConnectionError):
                while peer.recv(1000):
                    pass


def test_who_listens_but_never_answers_is_given_up(secret: Secret) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address.tcp(*silent.getsockname())
        with pytest.raises(DeadlinePassed):
            dial_peer(address, secret, deadline=Deadline.after(0.1))
    with pytest.raises(AddressRefused):
        dial_peer(address, secret, deadline=soon())


def test_a_peer_that_stops_in_the_middle_is_given_up(
    listener: PeerListener, secret: Secret
) -> None:
    with pair(listener, secret) as (a, b):
        a.send([encode_head(Kind.MESSAGE, [b"never comes"])])
        with pytest.raises(DeadlinePassed):
            recv_frame(b, deadline=Deadline.after(0.05))
        with pytest.raises(DeadlinePassed):
            send_frame(a, [bytes(50_000_000)], deadline=Deadline.after(0.05))
        a.close()
        with pytest.raises(ChannelClosed):
            recv_frame(b)


def test_damage_is_noticed(listener: PeerListener, secret: Secret) -> None:
    head = encode_head(Kind.MESSAGE, [b"payload"])
    for words in (b"x" * 100, head + b"Payload", head[:30] + b"!" + head[31:] + b"payload"):
        with pair(listener, secret) as (a, b):
            a.send([words])
            with pytest.raises(FrameDamaged):
                recv_frame(b, deadline=soon())
    with pair(listener, secret) as (a, b):
        send_frame(a, [b"x" * 101])
        with pytest.raises(FrameDamaged, match="at most"):
            recv_frame(b, deadline=soon(), max_frame_bytes=100)
        with pytest.raises(MessageTooLarge):
            send_frame(a, [b"x" * 101], max_frame_bytes=100)


def test_closing_releases_who_waits(address: Address, secret: Secret) -> None:
    listener = PeerListener(address, secret)
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(listener.take, b"x", soon()) for _ in range(3)]
        unclaimed = dial_peer(listener.address, secret, b"y", deadline=soon())
        listener.close()
        for wait in waits:
            with pytest.raises(ChannelClosed):
                wait.result()
    with pytest.raises(ChannelClosed):
        recv_frame(unclaimed, deadline=soon())
    unclaimed.close()
    listener.close()
    with pytest.raises(AddressRefused):
        dial_peer(listener.address, secret, deadline=soon())


def test_many_dial_at_once(listener: PeerListener, secret: Secret) -> None:
    keys = [b"%d" % n for n in range(64)]

    def go(key: bytes) -> bytes:
        with dial_peer(listener.address, secret, key, deadline=soon()) as sock:
            send_frame(sock, [key])
            return bytes(recv_frame(sock, deadline=soon())[0])

    with ThreadPoolExecutor(16) as pool:
        outcomes = pool.map(go, keys)
        for key in keys:
            with listener.take(key, soon()) as sock:
                send_frame(sock, [*recv_frame(sock, deadline=soon()), b"!"])
        assert list(outcomes) == keys


def test_threads_and_loops_understand_each_other(
    listener: PeerListener, address: Address, secret: Secret
) -> None:
    async def dials() -> None:
        channel = await dial(listener.address, secret, b"from a loop")
        await channel.send([b"hi"])
        assert await channel.recv() == [b"hi"]
        channel.close()

    def echo() -> None:
        with listener.take(b"from a loop", soon()) as sock:
            send_frame(sock, recv_frame(sock, deadline=soon()))

    def dialled(where: Address) -> None:
        with dial_peer(where, secret, b"from a thread", deadline=soon()) as sock:
            send_frame(sock, [b"x" * 300_000])
            assert recv_frame(sock, deadline=soon()) == [b"x" * 300_000]

    async def listens() -> None:
        async def serve(channel: Channel) -> None:
            assert channel.hello == b"from a thread"
            await channel.send(await channel.recv())
            with contextlib.suppress(ChannelClosed):
                await channel.recv()
            channel.close()

        where = address
        if address.scheme == "unix":
            where = Address.unix(address.path + "2")
        found = await listen(where, secret, serve)
        await asyncio.to_thread(dialled, found.address)
        await found.close()

    with ThreadPoolExecutor() as pool:
        echoing = pool.submit(echo)
        asyncio.run(dials())
        echoing.result()
    asyncio.run(listens())
