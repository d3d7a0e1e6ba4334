"""The shell of the lease: when the service may go on, and what is written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from danaus.quorum.leading import LeaseKeeper
from danaus.quorum.lease_events import Candidate, Entry, Follow, Lead, LeaseRecord, TimeCame
from danaus.quorum.minutes import Minutes
from danaus.testing.clock import ManualClock

LEASE_S = 10.0


class MemoryStore:
    """A lease in memory that can be out of reach."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.version = 0
        self.away = False

    async def read(self) -> Entry:
        if self.away:
            raise OSError(5, "it is away")
        return Entry(self.record, str(self.version))

    async def swap(self, record: LeaseRecord, version: str) -> Entry | None:
        if self.away:
            raise OSError(5, "it is away")
        if version != str(self.version):
            return None
        self.record, self.version = record, self.version + 1
        return Entry(record, str(self.version))


class Kept:
    """A keeper, and what it says."""

    def __init__(self) -> None:
        self.store, self.clock, self.minutes = MemoryStore(), ManualClock(), Minutes(None)
        self.turns: list[Lead | Follow] = []
        self.num_opened = 0
        me = Candidate("a", "unix:/a", "d", lease_s=LEASE_S)
        self.keeper = LeaseKeeper(
            me, self.store, self.turns.append, minutes=self.minutes, clock=self.clock
        )
        self.keeper.on_open = self.opened

    def opened(self) -> None:
        self.num_opened += 1

    async def until(self, ready: Callable[[], bool]) -> None:
        for _ in range(1000):
            if ready():
                return
            await asyncio.sleep(0)
        raise AssertionError("it did not come to that")

    async def settle(self) -> None:
        """Let what was ordered come to its end."""
        for _ in range(20):
            await asyncio.sleep(0)


def test_the_service_goes_on_after_the_gate_was_closed_without_anybody_noticing():
    async def story() -> None:
        kept = Kept()
        kept.keeper.start()
        await kept.until(lambda: kept.keeper.is_open)
        assert kept.turns == [Lead(1, trusts_disk=True)]
        before = kept.num_opened
        kept.clock.advance(8.5)
        assert not kept.keeper.is_open
        kept.keeper._feed(TimeCame())
        await kept.until(lambda: kept.keeper.is_open)
        assert kept.num_opened > before
        await kept.keeper.resign()

    asyncio.run(story())


def test_a_store_that_is_away_is_said_once_and_that_it_is_back():
    async def story() -> None:
        kept = Kept()
        kept.keeper.start()
        await kept.until(lambda: kept.keeper.is_open)
        kept.store.away = True
        for _ in range(3):
            kept.clock.advance(2.1)
            kept.keeper._feed(TimeCame())
            await kept.settle()
        assert kept.minutes.counts["lease_unreachable"] == 1
        assert kept.keeper.trouble == "it is away"
        kept.store.away = False
        kept.clock.advance(2.1)
        kept.keeper._feed(TimeCame())
        await kept.until(lambda: kept.keeper.is_open)
        assert kept.keeper.trouble == ""
        assert kept.minutes.counts["lease_reached_again"] == 1
        await kept.keeper.resign()

    asyncio.run(story())


def test_what_it_holds_is_given_back():
    async def story() -> None:
        kept = Kept()
        kept.keeper.start()
        await kept.until(lambda: kept.keeper.is_open)
        await kept.keeper.resign()
        assert kept.store.record is not None
        assert kept.store.record.holder == ""
        assert not kept.keeper.is_open

    asyncio.run(story())


def test_a_store_that_never_answers_holds_up_no_end():
    async def story() -> None:
        kept = Kept()
        kept.keeper.start()
        await kept.until(lambda: kept.keeper.is_open)
        kept.store.away = True
        kept.keeper._limit_s = 0.01
        await kept.keeper.resign()

    asyncio.run(story())
