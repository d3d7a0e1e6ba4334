"""A session takes messages from any thread, whatever becomes of its connection (A-1, A-3)."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

import pytest
from tests.procs.wire.harness import Relay, Run

from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import open_session, serve_sessions

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)
NUM_THREADS, NUM_EACH = 4, 300
LARGE = b"x" * 40_000  # now and then: sockets fill, and others wait for room


@pytest.fixture(params=["tcp", "tls"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "tls":
        request.getfixturevalue("far_loopback")
    return request.param


def test_each_threads_messages_arrive_once_and_in_order_over_cuts(run: Run, kind: str) -> None:
    async def work() -> None:
        arrived: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

        async def take(session) -> None:
            async for who, number, _ in session:
                arrived.put_nowait((int(who), int(number)))

        listener = await serve_sessions(LOOPBACK, SECRET, take)
        cuts = [20_000, 300_000, 1_000_000]
        async with Relay(listener.address, cuts, abrupt=True) as relay:
            session = await open_session(relay.address, SECRET, lost_limit_s=20.0)

            def send(who: int) -> None:
                for number in range(NUM_EACH):
                    rest = LARGE if number % 10 == who else b""
                    session.send([b"%d" % who, b"%d" % number, rest])

            threads = [threading.Thread(target=send, args=(who,)) for who in range(NUM_THREADS)]
            for thread in threads:
                thread.start()
            seen: defaultdict[int, list[int]] = defaultdict(list)
            for _ in range(NUM_THREADS * NUM_EACH):
                who, number = await arrived.get()
                seen[who].append(number)
            assert seen == {who: list(range(NUM_EACH)) for who in range(NUM_THREADS)}
            assert relay.num_connections == len(cuts) + 1
            for thread in threads:
                thread.join()
            await session.close(5.0)
        assert arrived.empty()
        await listener.close()

    run(work())
