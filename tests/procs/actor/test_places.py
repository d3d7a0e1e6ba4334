"""What an actor can know of where it is, and of what was called."""

from __future__ import annotations

import pytest

from danaus.actor import (
    Actor,
    Channel,
    SupervisionError,
    as_endpoint,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    send,
    shutdown_context,
    targets,
    this_host,
    this_proc,
)
from danaus.actor.tree import FAN_OUT
from danaus.core.errors import ConfigError

LIMIT_S = 30.0


class Placed(Actor):
    def __init__(self) -> None:
        self.made_at = dict(context().message_rank)

    @endpoint
    def where(self, ballast: bytes = b"") -> tuple[dict[str, int], int, int]:
        at = context().message_rank
        return dict(at), at.rank, current_rank().rank

    def plain(self) -> tuple[dict[str, int], int, int]:
        return self.where()

    @endpoint
    async def where_async(self) -> tuple[dict[str, int], int, int]:
        return self.where()

    @concurrent_endpoint
    def where_beside(self) -> tuple[dict[str, int], int, int]:
        return self.where()

    @endpoint
    def made(self) -> dict[str, int]:
        return self.made_at


def test_the_place_in_what_was_called_is_told_whatever_part_that_is(one):
    placed = one.host(0).spawn_procs(per_host={"a": 2, "b": 2}).spawn("placed", Placed)
    part, row = placed.slice(a=slice(1, 2)), placed.slice(a=1)
    for where in ("where", "where_async", "where_beside"):
        said = [getattr(each, where).call().get(LIMIT_S).values() for each in (part, row)]
        assert said[0] == (({"a": 0, "b": 0}, 0, 2), ({"a": 0, "b": 1}, 1, 3))
        assert said[1] == (({"b": 0}, 0, 2), ({"b": 1}, 1, 3))
    whole = placed.where.call().get(LIMIT_S).values()
    assert whole[2] == ({"a": 1, "b": 0}, 2, 2)
    assert placed.flatten("r").where.call().get(LIMIT_S).values()[3] == ({"r": 3}, 3, 3)
    assert row.slice(b=1).where.call_one().get(LIMIT_S) == ({}, 0, 3)
    large = row.slice(b=1).where.call_one(bytes(1 << 20))
    assert large.get(LIMIT_S) == ({}, 0, 3)
    assert placed.made.call().get(LIMIT_S).values()[1] == {"a": 0, "b": 1}


def test_one_that_was_chosen_stands_where_it_was_chosen_from(one):
    placed = one.host(0).spawn_procs(per_host={"a": 3}).spawn("placed", Placed)
    row = placed.slice(a=slice(1, 3))
    said = sorted(row.where.choose().get(LIMIT_S)[1:] for _ in range(2))
    assert set(said) <= {(0, 1), (1, 2)}
    port, receiver = Channel.open()
    send(row.where, (), {}, port=port, selection="choose")
    assert receiver.recv().get(LIMIT_S) in (({"a": 0}, 0, 1), ({"a": 1}, 1, 2))


def test_the_place_is_told_through_others_and_in_the_program_itself(one, monkeypatch):
    monkeypatch.setattr(targets, "DIRECT", FAN_OUT)  # as if they were many more
    placed = one.host(0).spawn_procs(per_host={"p": 14}).spawn("placed", Placed)
    part = placed.slice(p=slice(2, 14))
    told = part.where.call().get(LIMIT_S).values()
    assert told == tuple(({"p": at}, at, at + 2) for at in range(12))
    mine = this_proc().spawn("mine", Placed)
    assert mine.where.call_one().get(LIMIT_S) == ({}, 0, 0)
    mine.stop().get(LIMIT_S)
    assert dict(context().message_rank) == {}


class Told(Actor):
    """Knows who made it, spawns on its own process, and can end itself."""

    def __init__(self) -> None:
        self.made_by = repr(context().actor_instance.creator)

    @endpoint
    def below(self, name: str):
        return context().actor_instance.proc.spawn(name, Told)

    @endpoint
    def who(self) -> tuple[str, str | None, str, str]:
        me = context().actor_instance
        host = me.proc.host_mesh.hosts[0].name
        return repr(me), str(me.creator), me.proc_id, host

    @endpoint
    def leave(self) -> int:
        context().actor_instance.stop("I have seen enough")
        return 1


def test_an_actor_knows_who_made_it_and_can_spawn_beside_itself(two):
    procs = two.host(1).spawn_procs(per_host={"gpus": 2}, name="w")
    tops = procs.spawn("top", Told)
    below = tops.slice(gpus=1).below.call_one("below").get(LIMIT_S)
    top = f"client > top[gpus=1] ({__name__}.Told)"
    process = procs.process_ids[1]
    assert tops.slice(gpus=1).who.call_one().get(LIMIT_S) == (top, "client", process, "host1")
    told = (f"{top} > below ({__name__}.Told)", top, process, "host1")
    assert below.who.call_one().get(LIMIT_S) == told
    mine = context().actor_instance
    assert (mine.creator, mine.name, repr(mine)) == (None, "client", "client")
    with pytest.raises(ConfigError, match="shutdown_context"):
        mine.stop()


def test_an_actor_that_stops_itself_answers_first_and_says_why(one):
    told = one.host(0).spawn_procs().spawn("told", Told)
    assert told.leave.call_one().get(LIMIT_S) == 1
    with pytest.raises(SupervisionError, match="it was stopped: I have seen enough"):
        told.who.call_one().get(LIMIT_S)
    told.stop().get(LIMIT_S)


def test_a_mesh_of_processes_knows_its_hosts(two):
    procs = two.hosts.spawn_procs(per_host={"gpus": 2})
    assert procs.host_mesh.hosts == two.hosts.hosts
    assert dict(procs.slice(hosts=1).host_mesh.extent) == {"hosts": 1}
    one_more = procs.slice(hosts=1, gpus=0).host_mesh.spawn_procs()
    assert one_more.agent_addresses == (two.hosts.hosts[1].agent_address,)
    one_more.initialized.get(LIMIT_S)


def test_this_program_s_host_is_that_of_its_process_and_its_axis_gives_way():
    try:
        assert this_proc().host_mesh == this_host()
        assert len({this_host(), this_proc().host_mesh, this_host().rename(hosts="h")}) == 2
        procs = this_host().spawn_procs(per_host={"hosts": 2, "gpus": 1})
        assert dict(procs.extent) == {"hosts": 2, "gpus": 1}
        placed = procs.spawn("placed", Placed)
        said = placed.slice(hosts=1).where.call().get(LIMIT_S).values()
        assert said == (({"gpus": 0}, 0, 1),)
        assert procs.host_mesh.hosts == this_host().hosts
    finally:
        shutdown_context()


class Relay(Actor):
    """Calls an endpoint that it was handed."""

    def __init__(self, add) -> None:
        self.add = add

    @endpoint
    def relay(self, port) -> list[int]:
        said = [value[1] for value in self.add.call().get(LIMIT_S).values()]
        port.send(said)
        return said


def test_endpoints_are_references_too(one):
    procs = one.host(0).spawn_procs(per_host={"a": 3})
    placed = procs.spawn("placed", Placed)
    part = placed.slice(a=slice(1, 3))
    port, receiver = Channel[list[int]].open()
    for handed in (part.where, as_endpoint(part.plain), part.where.with_options(timeout_s=20.0)):
        relay = procs.slice(a=0).spawn("relay", Relay, handed)
        assert relay.relay.call_one(port).get(LIMIT_S) == receiver.recv().get(LIMIT_S) == [0, 1]
    mine = this_proc().spawn("mine", Placed)
    relay = procs.slice(a=0).spawn("relay", Relay, mine.where)
    assert relay.relay.call_one(port).get(LIMIT_S) == [0]
    mine.stop().get(LIMIT_S)
