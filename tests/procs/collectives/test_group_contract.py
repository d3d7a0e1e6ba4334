"""One suite for every group: in memory, over socket files, over TCP."""

import functools
import threading

import pytest
import torch

from danaus.collectives.folding import LeafFolder
from danaus.collectives.tree import Node, assign, height, plan_nodes, plan_reduction
from danaus.core.errors import ConfigError, DeadlinePassed, ExchangeAborted, PeerLost
from danaus.testing.groups import Member, member_names, plan_one_leaf_each, soon, together

# A vector that no socket buffer takes at once.
LARGE = 3_000_001


def leaves_of(num_leaves, num_elements, seed=0):
    draw = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-6, 7, (num_leaves, 1), generator=draw)
    return torch.randn(num_leaves, num_elements, generator=draw) * scale


def tree_sum(leaves, start, level):
    if start >= len(leaves):
        return None
    if level == 0:
        return leaves[start].clone()
    left = tree_sum(leaves, start, level - 1)
    right = tree_sum(leaves, start + (1 << (level - 1)), level - 1)
    return left if right is None else left + right


def fold(leaves, run):
    folder = LeafFolder(leaves.shape[1])
    folder.begin(run, len(leaves))
    for leaf in run:
        folder.add(leaf, leaves[leaf])
    return folder.partials()


def reduce_all(groups, plan, held, num_elements, subset=None):
    subset = subset or [group.me for group in groups]
    outs = [torch.full((num_elements,), float("nan")) for _ in groups]
    together(
        *(
            functools.partial(
                group.reduce_tree, held[i], outs[i], plan=plan, subset=subset, deadline=soon()
            )
            for i, group in enumerate(groups)
        )
    )
    return outs


@pytest.mark.parametrize("num_elements", [1, 3, 5000, 300_000])
@pytest.mark.parametrize(("num_members", "num_leaves"), [(1, 5), (2, 8), (3, 7), (4, 4), (4, 2)])
def test_the_bits_are_those_of_one_member(group_of, num_members, num_leaves, num_elements):
    leaves = leaves_of(num_leaves, num_elements)
    runs = assign(num_leaves, num_members)
    plan = plan_reduction(num_leaves, runs)
    groups = group_of(num_members)
    outs = reduce_all(groups, plan, [fold(leaves, run) for run in runs], num_elements)
    expect = tree_sum(leaves, 0, height(num_leaves))
    assert all(torch.equal(out, expect) for out in outs)


def test_many_partials_in_any_hands_and_again(group_of):
    """Nine leaves, scattered; buffers are used again in the second round."""
    groups = group_of(3)
    owner = [0, 2, 0, 1, 1, 0, 2, 2, 0]
    nodes = [tuple(Node(0, m) for m, o in enumerate(owner) if o == who) for who in range(3)]
    for seed, num_elements in ((1, 200_000), (2, 100_001), (3, 250_000)):
        leaves = leaves_of(9, num_elements, seed)
        held = [[leaves[node.place] for node in each] for each in nodes]
        outs = reduce_all(groups, plan_nodes(9, nodes), held, num_elements)
        expect = tree_sum(leaves, 0, height(9))
        assert all(torch.equal(out, expect) for out in outs)
        assert torch.equal(leaves, leaves_of(9, num_elements, seed))  # inputs are not changed


def test_members_without_leaves_get_the_sum(group_of):
    groups = group_of(3)
    leaves = leaves_of(4, 70_000)
    runs = (range(0), range(4), range(4, 4))
    plan = plan_reduction(4, runs)
    outs = reduce_all(groups, plan, [fold(leaves, run) for run in runs], 70_000)
    assert all(torch.equal(out, tree_sum(leaves, 0, 2)) for out in outs)


def test_a_large_vector_arrives_whole(group_of):
    groups = group_of(2)
    leaves = leaves_of(2, LARGE)
    outs = reduce_all(groups, plan_one_leaf_each(2), [[leaves[0]], [leaves[1]]], LARGE)
    assert all(torch.equal(out, leaves[0] + leaves[1]) for out in outs)


def test_subsets_reduce_side_by_side_and_votes_go_to_all(group_of):
    """Two replicas of two ranks: each rank reduces with its peer, all four vote."""
    groups = group_of(4)
    names = member_names(4)
    plan = plan_one_leaf_each(2)

    def step(i):
        subset = [names[i % 2], names[i % 2 + 2]]
        value, out = torch.full((5000,), float(10**i)), torch.empty(5000)
        sums, votes = [], []
        for _ in range(3):
            groups[i].reduce_tree([value], out, plan=plan, subset=subset, deadline=soon())
            sums.append(out[0].item())
            votes.append(groups[i].exchange_small(f"vote {i}".encode(), deadline=soon()))
        return sums, votes

    results = together(*(functools.partial(step, i) for i in range(4)))
    for i, (sums, votes) in enumerate(results):
        assert sums == [101.0 * 10 ** (i % 2)] * 3
        assert votes == [{name: f"vote {k}".encode() for k, name in enumerate(names)}] * 3


@pytest.mark.parametrize("num_members", [1, 2, 4, 7])
def test_small_payloads_reach_everyone(group_of, num_members):
    groups = group_of(num_members)
    payloads = [b"", b"x" * 100_000, b"\0", b"vote", b"\xff", b"more", b"n"][:num_members]
    calls = [
        functools.partial(group.exchange_small, payload, deadline=soon())
        for group, payload in zip(groups, payloads, strict=True)
    ]
    expect = dict(zip(member_names(num_members), payloads, strict=True))
    assert together(*calls) == [expect] * num_members
    assert [group.received() for group in groups] == [expect] * num_members


def test_small_payloads_among_some(group_of):
    groups = group_of(3)
    names = member_names(3)
    calls = [
        functools.partial(groups[i].exchange_small, b"v%d" % i, deadline=soon(), subset=names[:2])
        for i in range(2)
    ]
    assert together(*calls) == [{names[0]: b"v0", names[1]: b"v1"}] * 2


def test_a_member_that_is_through_may_leave_at_once(group_of):
    groups = group_of(3)

    def last_vote(group):
        votes = group.exchange_small(group.me.encode(), deadline=soon())
        group.close()
        return votes

    results = together(*(functools.partial(last_vote, group) for group in groups))
    assert results == [{name: name.encode() for name in member_names(3)}] * 3


def stuck(group, plan):
    """Return a reduction that cannot end: nobody else takes part."""
    values = [torch.ones(LARGE) for _ in plan.nodes[0]]
    out = torch.empty(LARGE)
    return functools.partial(
        group.reduce_tree, values, out, plan=plan, subset=group.names, deadline=soon()
    )


@pytest.mark.parametrize("what", ["reduce", "vote"])
def test_abort_releases_a_waiter_whose_peer_never_reads(group_of, what):
    """The peers do nothing: a large vector fills every buffer on the way to them."""
    started = threading.Event()
    groups = group_of(3, on_collective=lambda number: started.set())
    calls = {
        "reduce": stuck(groups[0], plan_one_leaf_each(3)),
        "vote": functools.partial(groups[0].exchange_small, b"vote", deadline=soon()),
    }
    member = Member(calls[what])
    assert started.wait(10)
    groups[0].abort("b is dead")
    ended = member.outcome()
    assert isinstance(ended, ExchangeAborted)
    assert ended.reason == "b is dead"
    with pytest.raises(ExchangeAborted):
        groups[0].exchange_small(b"", deadline=soon())


def test_abort_before_an_exchange_ends_it_at_once(group_of):
    groups = group_of(2)
    groups[0].abort("early")
    with pytest.raises(ExchangeAborted, match="early"):
        groups[0].exchange_small(b"", deadline=soon())
    with pytest.raises(PeerLost) as lost:
        groups[1].exchange_small(b"", deadline=soon())
    assert lost.value.peer == groups[0].me


def test_a_member_that_leaves_takes_its_peers_along(group_of):
    groups = group_of(3)
    member = Member(stuck(groups[0], plan_one_leaf_each(3)))
    groups[1].close()
    ended = member.outcome()
    assert isinstance(ended, PeerLost)
    assert ended.peer == groups[1].me


def test_votes_that_arrived_before_the_end_are_known(group_of):
    groups = group_of(3)
    patient = Member(functools.partial(groups[1].exchange_small, b"v1", deadline=soon()))
    ended = Member(functools.partial(groups[0].exchange_small, b"v0", deadline=soon(0.3))).outcome()
    assert isinstance(ended, DeadlinePassed)
    groups[1].abort("enough")
    assert isinstance(patient.outcome(), ExchangeAborted)
    assert groups[0].received() == {groups[0].me: b"v0", groups[1].me: b"v1"}


@pytest.mark.parametrize("silent", range(5))
def test_among_many_one_that_does_not_vote_keeps_all_from_an_end(group_of, silent):
    groups = group_of(5)
    others = [group for i, group in enumerate(groups) if i != silent]
    members = [
        Member(functools.partial(g.exchange_small, g.me.encode(), deadline=soon())) for g in others
    ]
    groups[silent].close()  # as its process's end would
    assert all(isinstance(member.outcome(), PeerLost) for member in members)
    for group in others:
        seen = group.received()
        assert seen[group.me] == group.me.encode()
        assert groups[silent].me not in seen
        assert all(name.encode() == payload for name, payload in seen.items())


def test_a_deadline_ends_the_wait_and_names_who_is_missing(group_of):
    groups = group_of(2)
    with pytest.raises(DeadlinePassed):
        groups[0].exchange_small(b"", deadline=soon(0.05))


def test_exchanges_are_counted(group_of):
    seen = []
    groups = group_of(1, on_collective=seen.append)
    groups[0].exchange_small(b"", deadline=soon())
    out = torch.empty(3)
    groups[0].reduce_tree(
        [torch.ones(3)], out, plan=plan_one_leaf_each(1), subset=groups[0].names, deadline=soon()
    )
    assert seen == [1, 2]


def test_arguments_that_do_not_fit_are_refused(group_of):
    group = group_of(1)[0]
    one = functools.partial(
        group.reduce_tree, plan=plan_one_leaf_each(1), subset=group.names, deadline=soon()
    )
    out = torch.empty(3)
    for partials, target in (
        ([], out),
        ([torch.ones(4)], out),
        ([torch.ones(3, dtype=torch.float64)], out),
        ([torch.ones(3, 2).t()[0]], out),
        ([out], out),
    ):
        with pytest.raises(ConfigError):
            one(partials, target)
    with pytest.raises(ConfigError):
        group.exchange_small(b"x" * (1 << 21), deadline=soon())
    with pytest.raises(ConfigError):
        group.reduce_tree([], out, plan=plan_one_leaf_each(2), subset=["a", "b"], deadline=soon())
    assert group.exchange_small(b"fine", deadline=soon()) == {group.me: b"fine"}
