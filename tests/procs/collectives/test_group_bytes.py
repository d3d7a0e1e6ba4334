"""One suite for ``exchange_bytes`` of every group: in memory, over socket files, TCP and TLS."""

import functools
import random

import pytest
import torch

from danaus.collectives.bytes_exchange import PIECE_BYTES, cut_pieces
from danaus.collectives.moving import broadcast, gather, receive, send
from danaus.core.errors import ConfigError, DeadlinePassed, ExchangeAborted, PeerLost
from danaus.testing.groups import Member, member_names, soon, together

# More than a socket buffer takes at once, and no whole number of pieces.
LARGE = 3 * PIECE_BYTES + 7


def bytes_of(size, seed):
    return random.Random(seed).randbytes(size)


def views(given):
    return {name: memoryview(data) for name, data in given.items()}


def exchange(group, give=None, take=None, limit_s=20.0):
    """Exchange; return what was taken, by name."""
    places = {name: bytearray(size) for name, size in (take or {}).items()}
    group.exchange_bytes(views(give or {}), views(places), deadline=soon(limit_s))
    return {name: bytes(place) for name, place in places.items()}


@pytest.mark.parametrize("num_bytes", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, LARGE])
def test_pieces_cover_all_bytes(num_bytes):
    pieces = cut_pieces(num_bytes)
    assert [at for piece in pieces for at in (piece.start, piece.stop)][::2] == [
        number * PIECE_BYTES for number in range(len(pieces))
    ]
    assert pieces[-1].stop == num_bytes
    assert sum(len(piece) for piece in pieces) == num_bytes
    assert len(pieces) == max(1, -(-num_bytes // PIECE_BYTES))


def test_everyone_gives_everyone_something_else(group_of):
    groups, names = group_of(3), member_names(3)
    data = {(a, b): bytes_of(LARGE + 100 * i + j, 10 * i + j) for i, a in enumerate(names)
            for j, b in enumerate(names) if a != b}  # fmt: skip

    def call(group):
        give = {b: each for (a, b), each in data.items() if a == group.me}
        take = {a: len(each) for (a, b), each in data.items() if b == group.me}
        return exchange(group, give, take)

    for group, taken in zip(groups, together(*(functools.partial(call, g) for g in groups)),
                            strict=True):  # fmt: skip
        assert taken == {a: each for (a, b), each in data.items() if b == group.me}


def test_one_gives_others_take_and_some_stand_apart(group_of):
    groups, names = group_of(4), member_names(4)
    data = bytes_of(LARGE, 1)
    results = together(
        functools.partial(exchange, groups[0], {names[1]: data, names[2]: b""}),
        functools.partial(exchange, groups[1], take={names[0]: LARGE}),
        functools.partial(exchange, groups[2], take={names[0]: 0}),
        functools.partial(exchange, groups[3]),
    )
    assert results == [{}, {names[0]: data}, {names[0]: b""}, {}]
    # Pairs count their exchanges for themselves: all still understand each other.
    votes = together(*(functools.partial(g.exchange_small, b"v", deadline=soon()) for g in groups))
    assert votes == [dict.fromkeys(names, b"v")] * 4


def test_another_size_than_was_agreed_ends_the_group(group_of):
    groups, names = group_of(2), member_names(2)
    giver = Member(functools.partial(exchange, groups[0], {names[1]: b"12345"}))
    with pytest.raises(PeerLost):
        exchange(groups[1], take={names[0]: 4})
    giver.outcome()
    with pytest.raises(PeerLost):
        groups[1].exchange_small(b"", deadline=soon())


def test_abort_ends_the_wait(group_of):
    groups, names = group_of(2), member_names(2)
    taker = Member(functools.partial(exchange, groups[0], take={names[1]: 1}))
    groups[0].abort("b is dead")
    assert isinstance(taker.outcome(), ExchangeAborted)


def test_a_deadline_ends_the_wait(group_of):
    groups, names = group_of(2), member_names(2)
    with pytest.raises(DeadlinePassed):
        exchange(groups[1], take={names[0]: 1}, limit_s=0.05)


def test_nobody_gives_to_itself(group_of):
    group = group_of(1)[0]
    with pytest.raises(ConfigError, match="with itself"):
        exchange(group, {group.me: b"x"})
    assert exchange(group) == {}


DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_any_kind_and_shape_are_gathered_and_broadcast(group_of, dtype):
    groups, names = group_of(3), member_names(3)
    mine = [torch.full((2, 3), i % 2, dtype=dtype).t() for i in range(3)]

    def call(group):
        subset = names[1:]
        at = names.index(group.me)
        gathered = gather(group, mine[at], subset=subset, deadline=soon())
        copied = mine[at].clone()
        broadcast(group, copied, root=names[2], subset=subset, deadline=soon())
        return gathered, copied

    for gathered, copied in together(*(functools.partial(call, g) for g in groups[1:])):
        assert [torch.equal(a, b) for a, b in zip(gathered, mine[1:], strict=True)] == [True] * 2
        assert torch.equal(copied, mine[2])


def test_what_is_sent_is_received(group_of):
    groups, names = group_of(3), member_names(3)
    given, place = torch.arange(700_000.0), torch.zeros(2, 350_000).t()
    empty = torch.empty(0)

    def ends(group):
        send(group, given.view(350_000, 2), to=names[2], deadline=soon())
        receive(group, empty, source=names[2], deadline=soon())

    def takes(group):
        receive(group, place, source=names[0], deadline=soon())
        send(group, empty, to=names[0], deadline=soon())

    together(functools.partial(ends, groups[0]), functools.partial(takes, groups[2]))
    assert torch.equal(place, given.view(350_000, 2))
    with pytest.raises(ConfigError, match="would broadcast"):
        broadcast(groups[0], given, root="nobody", subset=names, deadline=soon())
