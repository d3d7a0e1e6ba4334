"""What an actor can know of where it is, and of what was called."""

from __future__ import annotations

from danaus.actor import (
    Actor,
    Channel,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    send,
    targets,
    this_proc,
)
from danaus.actor.tree import FAN_OUT

LIMIT_S = 30.0


class Placed(Actor):
    def __init__(self) -> None:
        self.made_at = dict(context().message_rank)

    @endpoint
    def where(self, ballast: bytes = b"") -> tuple[dict[str, int], int, int]:
        at = context().message_rank
        return dict(at), at.rank, current_rank().rank

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
