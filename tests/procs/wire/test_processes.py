"""Peers in processes of their own, killed and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.procs.wire.harness import Run

from danaus.wire.address import Address
from danaus.wire.position import Phase, PositionBlock
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions

SERVER = """
import asyncio, sys
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import serve_sessions

async def main():
    def on_session(session):
        session.on_message = lambda parts: session.send(parts) and None
    secret = Secret.load(sys.argv[1])
    listener = await serve_sessions(Address.parse(sys.argv[2]), secret, on_session)
    print(listener.address, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await listener.close()

asyncio.run(main())
"""

CLIENT = """
import asyncio, sys
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import open_session

async def main():
    session = await open_session(Address.parse(sys.argv[2]), Secret.load(sys.argv[1]))
    session.send([b"here I am"])
    await session.closed

asyncio.run(main())
"""

WRITER = """
import sys
from danaus.wire.position import Phase, PositionBlock
block = PositionBlock.open(sys.argv[1])
print("ready", flush=True)
step = 0
while True:
    step += 1
    for phase in (Phase.COMPUTE, Phase.REDUCE):
        block.write(step, phase, step * 10 + phase)
"""


@pytest.fixture
def secret_path(tmp_path: Path) -> Path:
    Secret.create(tmp_path / "secret")
    return tmp_path / "secret"


@pytest.fixture
def secret(secret_path: Path) -> Secret:
    return Secret.load(secret_path)


@contextlib.contextmanager
def python(program: str, *arguments: str | Path) -> Iterator[subprocess.Popen]:
    started = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
    )  # fmt: skip
    with started:
        try:
            yield started
        finally:
            started.kill()


def said(process: subprocess.Popen) -> str:
    assert select.select([process.stdout], [], [], 20.0)[0], "it said nothing"
    return process.stdout.readline().strip()  # type: ignore[union-attr]


def test_a_kill_is_noticed_at_once(
    run: Run, secret: Secret, secret_path: Path, address: Address
) -> None:
    async def work() -> None:
        with python(SERVER, secret_path, str(address)) as server:
            session = await open_session(Address.parse(said(server)), secret, lost_limit_s=0.05)
            session.send([b"echo"])
            assert await session.receive() == [b"echo"]
            lost: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            session.on_disconnect = lambda _: lost.set_result(time.monotonic())
            started = time.monotonic()
            server.kill()
            assert await lost - started < 1.0
            assert (await session.closed).why

    run(work())


def test_a_stopped_peer_is_waited_for(run: Run, secret: Secret, secret_path: Path) -> None:
    """Only its owner may judge one that is stopped: to the session it is merely slow."""

    async def work() -> None:
        with python(SERVER, secret_path, "tcp:127.0.0.1:0") as server:
            session = await open_session(Address.parse(said(server)), secret, lost_limit_s=0.1)
            session.send([b"one"])
            assert await session.receive() == [b"one"]
            os.kill(server.pid, signal.SIGSTOP)
            for _ in range(50):
                session.send([bytes(1_000_000)])
            with pytest.raises(TimeoutError):
                await session.drain(0.5)
            assert session.is_connected
            os.kill(server.pid, signal.SIGCONT)
            for _ in range(50):
                assert await session.receive() == [bytes(1_000_000)]
            await session.close()
            server.stdin.close()  # type: ignore[union-attr]
            assert server.wait(20.0) == 0

    run(work())


def test_a_client_that_is_killed_is_noticed(run: Run, secret: Secret, secret_path: Path) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        where = Address.tcp("127.0.0.1", 0)
        listener = await serve_sessions(where, secret, accepted.put_nowait, lost_limit_s=0.05)
        with python(CLIENT, secret_path, str(listener.address)) as client:
            session = await accepted.get()
            assert await session.receive() == [b"here I am"]
            client.kill()
            assert "within" in (await session.closed).why
        await listener.close()

    run(work())


def test_positions_of_a_busy_writer_are_whole(tmp_path: Path) -> None:
    block = PositionBlock.create(tmp_path / "p")
    with python(WRITER, str(tmp_path / "p")) as writer:
        assert said(writer) == "ready"
        last, until = block.read(), time.monotonic() + 20.0
        seen = 0
        while seen < 50 and time.monotonic() < until:
            now = block.read()
            if now.moves > 1:
                assert now.collective == now.step * 10 + now.phase
                assert now.moves == 2 * now.step + (now.phase is Phase.REDUCE)
                seen += now != last
            assert now.moves >= last.moves
            last = now
        os.kill(writer.pid, signal.SIGSTOP)
        assert block.read().moves >= last.moves
    assert seen == 50
    block.close()
