"""Loops, addresses, and the two ends of a channel or a session, for each way to carry them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.procs.wire.doors import Door, loop_door, thread_door
from tests.procs.wire.harness import ChannelPair, Run

from danaus.testing.addresses import own_host
from danaus.wire import sockets
from danaus.wire.address import Address
from danaus.wire.channel import Channel, dial, listen, memory_pair
from danaus.wire.secret import Secret

LIMIT_S = 30.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine to its end, within a limit; no task may be left over."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def limited(work: Coroutine[Any, Any, Any]) -> Any:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
        async with asyncio.timeout(LIMIT_S):
            result = await work
            while left := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in left:
                    assert task.cancelling() or task.done(), f"left over: {task}"
                await asyncio.wait(left)
        assert not problems, problems
        return result

    def go(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(limited(work))

    return go


@pytest.fixture
def secret() -> Secret:
    return Secret.generate()


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="dn-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def far_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine's loopback count as another machine, so that connections are TLS."""
    monkeypatch.setattr(
        sockets, "is_local", lambda endpoint: endpoint.family == socket.AF_UNIX, raising=True
    )


@pytest.fixture
def own_address() -> Address:
    """An address of this machine that others could dial."""
    if not (host := own_host()):
        pytest.skip("this machine has no address but loopback")
    return Address.tcp(host, 0)


@pytest.fixture(params=["unix", "tcp", "tcp6", "tls"])
def address(request: pytest.FixtureRequest, short_dir: Path) -> Address:
    if request.param == "unix":
        return Address.unix(short_dir / "s")
    if request.param == "tls":
        request.getfixturevalue("far_loopback")
    return Address.tcp("::1" if request.param == "tcp6" else "127.0.0.1", 0)


@pytest.fixture(params=["memory", "unix", "tcp", "tls", "tls_own"])
def channel_pair(request: pytest.FixtureRequest, short_dir: Path, secret: Secret) -> ChannelPair:
    """The contract of a channel: dialler's end, acceptor's end."""
    where = Address.unix(short_dir / "c")
    if request.param in ("tcp", "tls"):
        where = Address.tcp("127.0.0.1", 0)
    elif request.param == "tls_own":
        where = request.getfixturevalue("own_address")
    if request.param == "tls":
        request.getfixturevalue("far_loopback")

    @contextlib.asynccontextmanager
    async def memory() -> AsyncIterator[tuple[Channel, Channel]]:
        dialler, acceptor = memory_pair(hello=b"hi")
        yield dialler, acceptor
        dialler.close()
        acceptor.close()

    @contextlib.asynccontextmanager
    async def real() -> AsyncIterator[tuple[Channel, Channel]]:
        accepted: asyncio.Queue[Channel] = asyncio.Queue()
        listener = await listen(where, secret, accepted.put_nowait)
        dialler = await dial(listener.address, secret, b"hi")
        acceptor = await accepted.get()
        try:
            yield dialler, acceptor
        finally:
            dialler.close()
            acceptor.close()
            await listener.close()

    return memory if request.param == "memory" else real


@pytest.fixture(params=[loop_door, thread_door])
def door(request: pytest.FixtureRequest) -> Door:
    return request.param
