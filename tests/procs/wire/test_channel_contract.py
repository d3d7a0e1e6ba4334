"""What every channel promises, over memory, socket files and TCP."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.procs.wire.harness import ChannelPair, Run

from danaus.core.errors import ChannelClosed, MessageTooLarge
from danaus.wire.frame import MAX_PARTS


def test_messages_arrive_in_order_both_ways(run: Run, channel_pair: ChannelPair) -> None:
    async def work() -> None:
        async with channel_pair() as (a, b):
            assert b.hello == b"hi"
            for n in range(200):
                await a.send([str(n).encode(), b"", b"x" * n])
                await b.send([b"back", str(n).encode()])
            for n in range(200):
                assert await b.recv() == [str(n).encode(), b"", b"x" * n]
                assert await a.recv() == [b"back", str(n).encode()]

    run(work())


def test_large_messages_arrive_whole_in_memory_of_the_receiver(
    run: Run, channel_pair: ChannelPair
) -> None:
    payload = bytes(range(256)) * (16 << 10)  # 4 MiB

    async def work() -> None:
        async with channel_pair() as (a, b), asyncio.TaskGroup() as group:
            parts = [b"head", memoryview(payload), payload[:33000], b"tail"]
            group.create_task(a.send(parts))
            got = await b.recv()
            assert got == [bytes(part) for part in parts]
            assert not any(memoryview(part).readonly for part in got)

    run(work())


def test_many_senders_wait_for_a_slow_receiver(run: Run, channel_pair: ChannelPair) -> None:
    async def work() -> None:
        async with channel_pair() as (a, b), asyncio.TaskGroup() as group:
            for n in range(40):
                group.create_task(a.send([bytes([n]) * 500_000]))
            for n in range(40):
                (part,) = await b.recv()
                assert part == bytes([n]) * 500_000

    run(work())


def test_an_end_is_told_after_everything_that_arrived(run: Run, channel_pair: ChannelPair) -> None:
    async def work() -> None:
        async with channel_pair() as (a, b):
            await a.send([b"last"])
            a.close()
            assert await b.recv() == [b"last"]
            with pytest.raises(ChannelClosed):
                await b.recv()
            with pytest.raises(ChannelClosed):
                await b.recv()
            with pytest.raises(ChannelClosed):
                await b.send([b"too late"])
            with pytest.raises(ChannelClosed):
                await a.send([b"too late"])

    run(work())


def test_a_waiting_receiver_is_released(run: Run, channel_pair: ChannelPair) -> None:
    async def work() -> None:
        async with channel_pair() as (a, b):
            waits = [asyncio.ensure_future(end.recv()) for end in (a, b)]
            await asyncio.sleep(0)
            a.close()
            for wait in waits:
                with pytest.raises(ChannelClosed):
                    await wait

    run(work())


def test_what_does_not_fit_is_refused_and_harms_nothing(
    run: Run, channel_pair: ChannelPair
) -> None:
    async def work() -> None:
        async with channel_pair() as (a, b):
            with pytest.raises(MessageTooLarge):
                await a.send([b""] * (MAX_PARTS + 1))
            await a.send([b""] * MAX_PARTS)
            assert await b.recv() == [b""] * MAX_PARTS

    run(work())


def test_a_cancelled_receive_loses_nothing(run: Run, channel_pair: ChannelPair) -> None:
    async def work() -> None:
        async with channel_pair() as (a, b):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await b.recv()
            await a.send([b"one"])
            assert await b.recv() == [b"one"]

    run(work())


def test_what_a_peer_sent_before_it_left_arrives_although_sending_fails(
    run: Run, channel_pair: ChannelPair
) -> None:
    async def work() -> None:
        async with channel_pair() as (a, b):
            if b.peer.startswith("tcp"):
                return  # there the kernel throws away what was not read yet
            await a.send([b"first"])
            assert await b.recv() == [b"first"]
            b.pause()
            for n in range(200):
                await a.send([b"%d" % n, bytes(50)])
            await a.send([b"last"])
            a.close()
            for _ in range(3):
                with contextlib.suppress(ChannelClosed):
                    b.push([b"in vain"])
            b.resume()
            for n in range(200):
                assert await b.recv() == [b"%d" % n, bytes(50)]
            assert await b.recv() == [b"last"]
            with pytest.raises(ChannelClosed):
                await b.recv()

    run(work())
