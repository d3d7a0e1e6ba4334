"""The order of a sum (T-4): pure numbers first, then real float32 bits."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.collectives.folding import LeafFolder, LeafSum
from danaus.collectives.tree import (
    Node,
    assign,
    combine_plan,
    height,
    partials,
    plan_nodes,
    plan_reduction,
    plan_shares,
)
from danaus.core.errors import ConfigError, InternalError


def tree_sum(leaves, start, level):
    """Sum along the tree by its definition: the reference of every other way."""
    if start >= len(leaves):
        return None
    if level == 0:
        return leaves[start].clone()
    left = tree_sum(leaves, start, level - 1)
    right = tree_sum(leaves, start + (1 << (level - 1)), level - 1)
    return left if right is None else left + right


def gradients(num_leaves, seed, num_elements=17):
    draw = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-6, 7, (num_leaves, 1), generator=draw)
    return list(torch.randn(num_leaves, num_elements, generator=draw) * scale)


def folded(leaves, run):
    folder = LeafFolder(leaves[0].numel())
    folder.begin(run, len(leaves))
    for leaf in run:
        folder.add(leaf, leaves[leaf])
    return [value.clone() for value in folder.partials()]


def combined(plan, held):
    slots = [held[who][k].clone() for who, k in plan.slots]
    for into, of in plan.adds:
        slots[into] += slots[of]
    return slots[0]


@st.composite
def cuts(draw):
    """Any sharing of the leaves in consecutive runs, empty ones included."""
    num_leaves = draw(st.integers(1, 24))
    inner = draw(st.lists(st.integers(0, num_leaves), max_size=6))
    edges = [0, *sorted(inner), num_leaves]
    return num_leaves, tuple(range(a, b) for a, b in itertools.pairwise(edges))


@given(cuts(), st.integers(0, 2**31))
@settings(deadline=None)
def test_any_runs_give_the_bits_of_one_replica(cut, seed):
    num_leaves, runs = cut
    leaves = gradients(num_leaves, seed)
    plan = plan_reduction(num_leaves, runs)
    total = combined(plan, [folded(leaves, run) for run in runs])
    assert torch.equal(total, tree_sum(leaves, 0, height(num_leaves)))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**31))
@settings(deadline=None)
def test_assigned_runs_give_the_bits_of_one_replica(num_leaves, num_replicas, seed):
    leaves = gradients(num_leaves, seed, num_elements=5)
    runs = assign(num_leaves, num_replicas)
    total = combined(plan_reduction(num_leaves, runs), [folded(leaves, run) for run in runs])
    assert torch.equal(total, tree_sum(leaves, 0, height(num_leaves)))


@given(st.integers(1, 24), st.data())
@settings(deadline=None)
def test_leaves_held_in_any_order_give_the_same_bits(num_leaves, data):
    leaves = gradients(num_leaves, data.draw(st.integers(0, 2**31)))
    owner = data.draw(st.lists(st.integers(0, 3), min_size=num_leaves, max_size=num_leaves))
    nodes = tuple(tuple(Node(0, m) for m, o in enumerate(owner) if o == who) for who in range(4))
    held = [[leaves[node.place] for node in nodes[who]] for who in range(4)]
    total = combined(plan_nodes(num_leaves, nodes), held)
    assert torch.equal(total, tree_sum(leaves, 0, height(num_leaves)))


@given(st.integers(1, 60), st.integers(1, 12))
def test_assignment_is_balanced_and_complete(num_leaves, num_replicas):
    runs = assign(num_leaves, num_replicas)
    assert len(runs) == num_replicas
    assert [leaf for run in runs for leaf in run] == list(range(num_leaves))
    assert max(map(len, runs)) == -(-num_leaves // num_replicas)


def brute_force(num_leaves, num_replicas):
    """Return the fewest partials among all balanced sharings."""
    largest = -(-num_leaves // num_replicas)

    def fewest(at, left):
        if left == 0:
            return 0 if at == num_leaves else float("inf")
        ends = range(at, min(num_leaves, at + largest) + 1)
        return min(
            len(partials(range(at, end), num_leaves)) + fewest(end, left - 1) for end in ends
        )

    return fewest(0, num_replicas)


@given(st.integers(1, 12), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_assignment_sends_the_fewest_partials(num_leaves, num_replicas):
    plan = plan_reduction(num_leaves, assign(num_leaves, num_replicas))
    assert len(plan.slots) == brute_force(num_leaves, num_replicas)


@pytest.mark.parametrize("num_replicas", [1, 2, 4, 8])
def test_whole_subtrees_where_the_share_is_a_power_of_two(num_replicas):
    plan = plan_reduction(8, assign(8, num_replicas))
    assert [len(nodes) for nodes in plan.nodes] == [1] * num_replicas


@pytest.mark.parametrize(
    ("run", "num_leaves", "expect"),
    [
        (range(0, 3), 3, [(2, 0)]),
        (range(2, 3), 3, [(1, 1)]),
        (range(1, 4), 4, [(0, 1), (1, 1)]),
        (range(4, 5), 5, [(2, 1)]),
        (range(3, 6), 6, [(0, 3), (2, 1)]),
        (range(0, 1), 1, [(0, 0)]),
        (range(3, 3), 6, []),
    ],
)
def test_partials_are_the_maximal_subtrees(run, num_leaves, expect):
    assert partials(run, num_leaves) == tuple(Node(*each) for each in expect)


def test_large_fleets_are_assigned_too():
    assert sum(map(len, assign(512, 127))) == 512


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [Node(0, 0)],
        [Node(1, 0), Node(0, 1), Node(1, 1)],
        [Node(1, 1), Node(1, 0)],
        [Node(1, 0), Node(0, 2)],
    ],
)
def test_partials_that_miss_or_repeat_a_leaf_are_refused(nodes):
    with pytest.raises(ConfigError, match="do not add up"):
        combine_plan(nodes, 4)


@pytest.mark.parametrize(("num_leaves", "num_replicas"), [(0, 1), (1, 0)])
def test_nothing_to_share_is_refused(num_leaves, num_replicas):
    with pytest.raises(ConfigError):
        assign(num_leaves, num_replicas)


@given(cuts(), st.integers(0, 2**31))
@settings(deadline=None)
def test_without_an_order_each_brings_one_sum_of_all_that_it_holds(cut, seed):
    num_leaves, runs = cut
    leaves = gradients(num_leaves, seed)
    plan = plan_shares(runs)
    held = []
    for run in runs:
        summed = LeafSum(leaves[0].numel())
        for _ in range(2):  # what was brought before is forgotten
            summed.begin(run, num_leaves)
            for leaf in run:
                summed.add(leaf, leaves[leaf])
        held.append([value.clone() for value in summed.partials()])
    assert [len(each) for each in held] == [int(bool(run)) for run in runs]
    assert [len(nodes) for nodes in plan.nodes] == [len(each) for each in held]
    exact = torch.stack(leaves).double().sum(dim=0)
    allowed = torch.stack(leaves).abs().sum(dim=0).double() * num_leaves * 2.0**-23
    assert torch.all((combined(plan, held).double() - exact).abs() <= allowed)


def test_a_sum_that_lacks_a_leaf_is_none():
    summed = LeafSum(4)
    summed.begin(range(2), 2)
    summed.add(0, torch.ones(4))
    with pytest.raises(InternalError):
        summed.partials()
    with pytest.raises(InternalError):
        summed.add(0, torch.ones(4))


def test_folder_keeps_one_buffer_per_level_for_a_whole_subtree():
    folder = LeafFolder(4)
    addresses = set()
    for _ in range(3):
        folder.begin(range(8), 8)
        for leaf in range(8):
            folder.add(leaf, torch.full((4,), float(leaf)))
            addresses |= {value.data_ptr() for _, value in folder._stack}
        assert folder.partials()[0].tolist() == [28.0] * 4
    assert len(addresses) <= height(8)


def test_folder_does_not_touch_what_it_is_given():
    leaf = torch.ones(4)
    folder = LeafFolder(4)
    folder.begin(range(2), 2)
    folder.add(0, leaf)
    folder.add(1, leaf)
    assert folder.partials()[0].tolist() == [2.0] * 4
    assert leaf.tolist() == [1.0] * 4


def test_folder_refuses_leaves_out_of_order_or_missing():
    folder = LeafFolder(4)
    folder.begin(range(2, 4), 4)
    with pytest.raises(InternalError):
        folder.add(3, torch.ones(4))
    folder.add(2, torch.ones(4))
    with pytest.raises(InternalError):
        folder.partials()
    with pytest.raises(ConfigError):
        folder.add(3, torch.ones(4, dtype=torch.float64))
