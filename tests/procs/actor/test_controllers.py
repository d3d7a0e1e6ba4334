"""Actors of which a job has one; breakpoints; transports; who runs."""

from __future__ import annotations

import asyncio

import pytest

from danaus.actor import (
    Actor,
    ActorError,
    ChannelTransport,
    concurrent_endpoint,
    context,
    debug_controller,
    enable_transport,
    endpoint,
    get_or_spawn_controller,
    shutdown_context,
    this_host,
)
from danaus.core.errors import AddressRefused, ConfigError

LIMIT_S = 20.0


class Registry(Actor):
    def __init__(self, start: int) -> None:
        self.n = start

    @endpoint
    def add(self, k: int) -> int:
        self.n += k
        return self.n

    @endpoint
    def process(self) -> str:
        return context().actor_instance.proc_id


class Other(Actor):
    pass


class Broken(Actor):
    def __init__(self) -> None:
        raise RuntimeError("cannot be made")


class Asker(Actor):
    @endpoint
    def count(self, k: int) -> int:
        registry = get_or_spawn_controller("registry", Registry, 100).get(LIMIT_S)
        return registry.add.call_one(k).get(LIMIT_S)

    @endpoint
    async def count_async(self, k: int) -> int:
        registry = await get_or_spawn_controller("registry", Registry, 100)
        return await registry.add.call_one(k)

    @endpoint
    def spawn_asker(self):
        inner = this_host().spawn_procs(name="inner").spawn("asker", Asker)
        return inner.slice(hosts=0)

    @endpoint
    def stop_here(self, k: int) -> int:
        doubled = 2 * k
        breakpoint()
        return doubled

    @concurrent_endpoint
    async def stop_here_async(self, k: int) -> int:
        breakpoint()
        return k

    @endpoint
    def who(self) -> tuple[str, int, str]:
        me = context()
        return me.name, me.rank["gpus"], me.proc_id


def test_whoever_asks_gets_the_same_one(two):
    askers = two.hosts.spawn_procs(name="w").spawn("asker", Asker)
    assert sorted(askers.count.call(1).get(LIMIT_S).values()) == [101, 102]
    registry = get_or_spawn_controller("registry", Registry, 0).get(LIMIT_S)
    assert registry.add.call_one(1).get(LIMIT_S) == 103
    assert registry.process.call_one().get(LIMIT_S) == context().proc.process_id
    inner = askers.slice(hosts=0).spawn_asker.call_one().get(LIMIT_S)
    assert inner.count.call_one(1).get(LIMIT_S) == 104
    assert askers.slice(hosts=1).count_async.call_one(1).get(LIMIT_S) == 105


def test_a_name_belongs_to_one_class(one):
    get_or_spawn_controller("registry", Registry, 0).get(LIMIT_S)
    with pytest.raises(ActorError, match="another name for"):
        get_or_spawn_controller("registry", Other).get(LIMIT_S)
    with pytest.raises(TypeError, match="not a subclass of Actor"):
        get_or_spawn_controller("no actor", dict)


def test_one_that_cannot_be_made_is_told_to_who_asked_and_may_be_asked_for_again(one):
    with pytest.raises(ActorError, match="cannot be made"):
        get_or_spawn_controller("broken", Broken).get(LIMIT_S)
    assert get_or_spawn_controller("broken", Registry, 1).get(LIMIT_S) is not None
    assert not one.has_failed


def stop_at(asker, endpoint_name: str, k: int):
    """Call an endpoint that stops; return the call, the debugger and the breakpoint."""
    debugger = debug_controller()
    call = getattr(asker, endpoint_name).call_one(k)
    (at,) = debugger.breakpoints.call_one(LIMIT_S).get(2 * LIMIT_S)
    return call, debugger, at


def test_a_breakpoint_waits_for_someone_to_look_and_goes_on(one):
    asker = one.host(0).spawn_procs(name="w").spawn("asker", Asker)
    call, debugger, at = stop_at(asker, "stop_here", 21)
    assert (at.process_id, at.actor) == ("host0/w/0#0", "asker[the only point]")
    assert at.where.partition(":")[2].isdecimal()
    assert "stop_here()" in debugger.read.call_one(at.number).get(LIMIT_S)
    debugger.write.call_one(at.number, "p doubled * 10").get(LIMIT_S)
    assert "420" in debugger.read.call_one(at.number).get(LIMIT_S)
    debugger.write.call_one(at.number, "doubled = 1").get(LIMIT_S)
    debugger.read.call_one(at.number).get(LIMIT_S)
    debugger.write.call_one(at.number, "continue").get(LIMIT_S)
    assert call.get(LIMIT_S) == 1
    assert debugger.read.call_one(at.number).get(LIMIT_S) == ""
    assert debugger.breakpoints.call_one().get(LIMIT_S) == []


def test_a_breakpoint_in_an_async_endpoint_too(one):
    asker = one.host(0).spawn_procs(name="w").spawn("asker", Asker)
    call, debugger, at = stop_at(asker, "stop_here_async", 3)
    debugger.write.call_one(at.number, "k = k + 1").get(LIMIT_S)
    debugger.write.call_one(at.number, "c").get(LIMIT_S)
    assert call.get(LIMIT_S) == 4


@pytest.fixture
def no_context():
    shutdown_context()
    yield
    shutdown_context()
    enable_transport("unix")


@pytest.mark.parametrize("transport", ["tcp", "tcp://127.0.0.1:0", ChannelTransport.Unix])
def test_the_transport_is_chosen_before_the_host_is_there(no_context, transport):
    enable_transport(transport)
    asker = this_host().spawn_procs({"gpus": 2}).spawn("asker", Asker)
    names = asker.who.call().get(LIMIT_S).values()
    assert [(name, rank) for name, rank, _ in names] == [("asker", 0), ("asker", 1)]
    scheme = "unix" if transport is ChannelTransport.Unix else "tcp"
    assert this_host().hosts[0].agent_address.startswith(f"{scheme}:")
    with pytest.raises(ConfigError, match="cannot be changed any more"):
        enable_transport("ipc")


def test_a_transport_that_is_none_is_refused():
    with pytest.raises(AddressRefused):
        enable_transport("pigeons")


def test_an_actor_knows_who_runs(one):
    assert context().name == "client"
    procs = one.host(0).spawn_procs({"gpus": 1}, name="w")
    who = procs.spawn("asker", Asker).slice(gpus=0).who.call_one()
    assert asyncio.run(_value(who)) == ("asker", 0, "host0/w/0#0")


async def _value(future):
    return await future
