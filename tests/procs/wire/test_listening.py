"""Socket files, ports in use, descriptors that run out."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.procs.wire.harness import Run

from danaus.core.clock import Deadline
from danaus.core.errors import AddressRefused
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener, dial_peer
from danaus.wire.channel import Channel, dial, listen
from danaus.wire.opening import Dialling
from danaus.wire.secret import Secret
from danaus.wire.sockets import BoundSocket, Endpoint

SECRET = Secret.generate()


def no_one(channel: Channel) -> None:
    channel.close()


def test_a_socket_file_is_its_owners_and_goes_with_it(run: Run, short_dir: Path) -> None:
    path = short_dir / "s"

    async def work() -> None:
        before = os.umask(0)
        try:
            listener = await listen(Address.unix(path), SECRET, no_one)
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o600
        await listener.close()
        assert not path.exists()

    run(work())


def test_a_socket_file_of_the_dead_is_replaced(run: Run, short_dir: Path) -> None:
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def work() -> None:
        listener = await listen(Address.unix(path), SECRET, no_one)
        with pytest.raises(AddressRefused, match="another process"):
            await listen(Address.unix(path), SECRET, no_one)
        # A successor's file is not the predecessor's to remove.
        path.unlink()
        successor = await listen(Address.unix(path), SECRET, no_one)
        await listener.close()
        assert path.exists()
        await successor.close()

    run(work())


def test_a_file_that_is_no_socket_is_left_alone(run: Run, short_dir: Path) -> None:
    path = short_dir / "precious"
    path.write_text("data")

    async def work() -> None:
        with pytest.raises(AddressRefused):
            await listen(Address.unix(path), SECRET, no_one)
        with pytest.raises(AddressRefused):
            await listen(Address.unix(short_dir / "no" / "folder"), SECRET, no_one)
        with pytest.raises(AddressRefused):
            await dial(Address.unix(path), SECRET)

    run(work())
    assert path.read_text() == "data"


def test_of_a_name_with_several_addresses_all_that_were_tried_are_told() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        places = [Endpoint(socket.AF_INET, (host, port)) for host in ("127.0.0.1", "127.0.0.2")]
        poller, deadline = select.poll(), Deadline.after(5.0)
        told = "tried 127.0.0.1: Connection refused; 127.0.0.2: Connection refused"
        with pytest.raises(AddressRefused, match=told):  # noqa: PT012
            dialling = Dialling(places, SECRET, b"", peer=f"tcp:a-name:{port}")
            while not dialling.advance() and not deadline.passed:
                poller.register(dialling, dialling.interest)
                poller.poll(1000)


def test_a_port_in_use_is_named(run: Run) -> None:
    async def work() -> None:
        listener = await listen(Address.tcp("localhost", 0), SECRET, no_one)
        port = listener.address.port
        with pytest.raises(AddressRefused, match=str(port)):
            await listen(listener.address, SECRET, no_one)
        await listener.close()
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(AddressRefused, match=str(port)):
                await dial(Address.tcp(host, port), SECRET)
        with pytest.raises(AddressRefused, match="resolved"):
            await dial(Address.tcp("no-such-host.invalid", 1), SECRET, limit_s=20.0)

    run(work())


@pytest.fixture
def starved(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the first three accepts fail as they do without descriptors; count all."""
    calls = 0
    real = BoundSocket.accept

    def accept(self: BoundSocket) -> socket.socket | None:
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    monkeypatch.setattr(BoundSocket, "accept", accept)
    return lambda: calls


def test_a_loop_out_of_descriptors_serves_when_it_has_some_again(
    run: Run, starved: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        listener = await listen(Address.tcp("127.0.0.1", 0), SECRET, no_one)
        (await dial(listener.address, SECRET)).close()
        await listener.close()

    run(work())
    assert starved() < 10
    assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 3


def test_a_thread_out_of_descriptors_serves_when_it_has_some_again(
    starved: Callable[[], int],
) -> None:
    listener = PeerListener(Address.tcp("127.0.0.1", 0), SECRET)
    dial_peer(listener.address, SECRET, deadline=Deadline.after(10.0)).close()
    listener.close()
    assert starved() < 10


def test_a_full_backlog_is_waited_for(run: Run, short_dir: Path) -> None:
    """A socket file's listener that is slow to accept refuses nobody."""
    address = Address.unix(short_dir / "s")

    async def work() -> None:
        with socket.socket(socket.AF_UNIX) as slow:
            slow.bind(address.path)
            slow.listen(0)
            dials = [asyncio.ensure_future(dial(address, SECRET, limit_s=5.0)) for _ in range(5)]
            for _ in range(10):
                await asyncio.sleep(0)
            assert not any(each.done() for each in dials)
        for each in dials:
            await asyncio.wait([each])
            assert each.exception() is not None

    run(work())


def test_a_wildcard_takes_this_machine_plain(run: Run) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(Address.tcp("::", 0), SECRET, accepted.put_nowait)
        for host in ("127.0.0.1", "::1"):
            dialler = await dial(Address.tcp(host, listener.address.port), SECRET)
            channel = await accepted.get()
            await channel.send([b"hi"])
            assert await dialler.recv() == [b"hi"]
            dialler.close()
            channel.close()
        await listener.close()

    run(work())
