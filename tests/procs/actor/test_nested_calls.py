"""Endpoints that call endpoints, also back into where they were called from (A-2, A-10)."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from danaus.actor import (
    Actor,
    Channel,
    Port,
    concurrent_endpoint,
    context,
    endpoint,
    this_proc,
    wait_all,
)

LIMIT_S = 20.0


@dataclass
class Parcel:
    """References and ports inside of other things."""

    actors: dict[str, Any]
    ports: list[Port[str]] = field(default_factory=list)


class Member(Actor):
    def __init__(self) -> None:
        self.gate = threading.Event()

    @endpoint
    def process(self) -> str:
        return context().proc.process_id

    @endpoint
    def ask(self, other) -> str:
        return other.process.call_one().get(LIMIT_S)

    @endpoint
    async def ask_async(self, other) -> str:
        return await other.process.call_one()

    @endpoint
    def ask_through(self, path: list[Any]) -> list[str]:
        """Call the next of these with those that follow, and so on."""
        if not path:
            return [context().proc.process_id]
        inner = path[0].ask_through.call_one(path[1:]).get(LIMIT_S)
        return [context().proc.process_id, *inner]

    @concurrent_endpoint
    async def count_down(self, partner, k: int) -> int:
        """Go back and forth between two actors, each waiting for the other."""
        if k == 0:
            return 0
        return 1 + await partner[1].count_down.call_one((partner[1], partner[0]), k - 1)

    @endpoint
    def block(self) -> str:
        assert self.gate.wait(LIMIT_S)
        return "went on"

    @concurrent_endpoint
    async def release(self) -> None:
        self.gate.set()

    @endpoint
    def unpack(self, parcel: Parcel) -> Parcel:
        found = {name: a.process.call_one().get(LIMIT_S) for name, a in parcel.actors.items()}
        for port in parcel.ports:
            port.send(f"from {context().proc.process_id}")
        mine = this_proc().spawn("mine", Member)
        seen = {f"{name} at {at}": parcel.actors[name] for name, at in found.items()}
        return Parcel({"mine": mine, **seen})

    @concurrent_endpoint
    async def fan_out(self, others, depth: int) -> int:
        """Call all of a mesh from all of a mesh, several levels deep."""
        if depth == 0:
            return 1
        values = await others.fan_out.call(others, depth - 1)
        return sum(values.values())


@pytest.fixture
def procs(one):
    return one.host(0).spawn_procs({"r": 2}, name="w")


@pytest.fixture
def members(procs):
    return procs.spawn("member", Member)


@pytest.mark.parametrize("how", ["ask", "ask_async"])
def test_an_endpoint_calls_back_into_its_caller_s_process(procs, members, how):
    """The one that is called back lives beside the caller, which is waiting meanwhile."""
    first, second = members.slice(r=0), members.slice(r=1)
    beside = procs.spawn("beside", Member).slice(r=0)
    asked = second.ask_through.call_one([first, beside])  # w1 -> w0 -> w0
    assert asked.get(LIMIT_S) == ["host0/w/1#0", "host0/w/0#0", "host0/w/0#0"]
    assert getattr(first, how).call_one(beside).get(LIMIT_S) == "host0/w/0#0"
    back = first.ask_through.call_one([second, beside, procs.spawn("far", Member).slice(r=1)])
    places = [place.partition("/w/")[2] for place in back.get(LIMIT_S)]
    assert places == ["0#0", "1#0", "0#0", "1#0"]


@pytest.mark.parametrize("how", ["ask", "ask_async"])
def test_an_endpoint_calls_back_into_the_program_that_waits_for_it(members, how):
    here = this_proc().spawn("here", Member)
    mine = context().proc.process_id
    call = getattr(members.slice(r=0), how).call_one(here)
    assert call.get(LIMIT_S) == mine

    async def from_a_loop() -> str:
        return await getattr(members.slice(r=1), how).call_one(here)

    assert asyncio.run(from_a_loop()) == mine


def test_two_actors_that_wait_for_each_other_do_not_hang(members):
    first, second = members.slice(r=0), members.slice(r=1)
    assert first.count_down.call_one((first, second), 40).get(LIMIT_S) == 40


def test_meshes_that_call_meshes_all_get_through(members):
    total = members.fan_out.call(members, 5).get(LIMIT_S)
    assert total.values() == (32, 32)


def test_what_blocks_for_long_holds_up_no_async_endpoint_in_its_process(procs, members):
    blocked = members.block.call()
    others, third = procs.spawn("other", Member), procs.spawn("third", Member).slice(r=0)
    for _ in range(3):
        assert len(others.ask_async.call(third).get(LIMIT_S)) == 2
    assert not blocked.done()
    members.release.broadcast()  # of the same actors: it starts beside what blocks
    assert blocked.get(LIMIT_S).values() == ("went on", "went on")


def test_references_and_ports_travel_inside_of_anything(procs, members):
    port, receiver = Channel[str].open()
    first, second = members.slice(r=0), members.slice(r=1)
    here = this_proc().spawn("here", Member)
    parcel = Parcel({"second": second, "here": here}, [port, port])
    back = first.unpack.call_one(parcel).get(LIMIT_S)
    mine = context().proc.process_id
    assert set(back.actors) == {"mine", "second at host0/w/1#0", f"here at {mine}"}
    found = wait_all(actor.process.call_one() for actor in back.actors.values()).get(LIMIT_S)
    assert found == ["host0/w/0#0", "host0/w/1#0", mine]
    assert [receiver.recv().get(LIMIT_S) for _ in range(2)] == ["from host0/w/0#0"] * 2
