"""The order in which leaves are summed, as a function of numbers alone.

Owns the shape of T-4: which leaf belongs to whom, which partial sums a run of leaves is sent as,
and in which order partials are added.  Adding tensors is left to ``folding`` and to the groups.

The tree is the binary tree of the next power of two above ``num_leaves``; a node ``(level,
place)`` covers the leaves ``[place * 2**level, (place + 1) * 2**level)``; leaves that do not
exist are skipped, so a node whose right half is absent *is* its left half.

Invariants:
    T-4: the additions along the tree depend on ``num_leaves`` only, never on who holds what.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from danaus.core.errors import ConfigError


class Node(NamedTuple):
    """One subtree: ``level`` 0 is a leaf, ``place`` counts the nodes of that level."""

    level: int
    place: int


class Add(NamedTuple):
    """Add slot ``of`` to slot ``into`` and keep the sum in ``into``."""

    into: int
    of: int


@dataclass(frozen=True)
class ReductionPlan:
    """Who brings which partial sums to one reduction, and the order in which they are added.

    Args:
        num_leaves: Leaves of the whole sum.
        runs: The leaves of each participant, in the order of the participants.
        nodes: The partials of each participant, in the order in which it holds them.
        slots: ``(participant, place among its partials)`` of each slot, in leaf order.
        adds: What to add to what; the last one leaves the sum in slot 0.
    """

    num_leaves: int
    runs: tuple[range, ...]
    nodes: tuple[tuple[Node, ...], ...]
    slots: tuple[tuple[int, int], ...]
    adds: tuple[Add, ...]


def height(num_leaves: int) -> int:
    """Return the level of the root: ``2**height`` is the next power of two."""
    return (num_leaves - 1).bit_length() if num_leaves > 0 else 0


def first_leaf(node: Node) -> int:
    """Return the first leaf that ``node`` covers."""
    return node.place << node.level


def num_present(node: Node, num_leaves: int) -> int:
    """Return how many of the leaves that ``node`` covers exist."""
    start = first_leaf(node)
    return max(0, min(num_leaves - start, 1 << node.level))


def promote(node: Node, num_leaves: int) -> Node:
    """Return the largest node with the same leaves as ``node`` (absent siblings add nothing)."""
    level, index = node
    top = height(num_leaves)
    while level < top and index % 2 == 0 and (index + 1) << level >= num_leaves:
        level, index = level + 1, index // 2
    return Node(level, index)


def halve(node: Node, num_leaves: int) -> tuple[Node, Node] | None:
    """Return the two subtrees whose sum is ``node``; None if it covers a single leaf."""
    level, index = node
    while level > 0 and first_leaf(Node(level - 1, 2 * index + 1)) >= num_leaves:
        level, index = level - 1, 2 * index
    if level == 0:
        return None
    return Node(level - 1, 2 * index), Node(level - 1, 2 * index + 1)


def partials(run: range, num_leaves: int) -> tuple[Node, ...]:
    """Return the fewest subtrees whose leaves are exactly those of ``run``, in leaf order.

    Args:
        run: Consecutive leaves, inside ``range(num_leaves)``; may be empty.
        num_leaves: Leaves of the whole sum.
    """
    found: list[Node] = []
    at = run.start
    while at < run.stop:
        node = promote(Node(0, at), num_leaves)
        while node.level < height(num_leaves) and node.place % 2 == 0:
            parent = promote(Node(node.level + 1, node.place // 2), num_leaves)
            if first_leaf(parent) + num_present(parent, num_leaves) > run.stop:
                break
            node = parent
        found.append(node)
        at += num_present(node, num_leaves)
    return tuple(found)


def combine_plan(nodes: Sequence[Node], num_leaves: int) -> tuple[Add, ...]:
    """Return the additions that turn ``nodes`` into the root; the sum ends in slot 0.

    Args:
        nodes: Subtrees in leaf order that cover every leaf once; slot ``i`` holds ``nodes[i]``.
        num_leaves: Leaves of the whole sum.

    Raises:
        ConfigError: The nodes miss a leaf, cover one twice or are not in leaf order.
    """
    place = {promote(node, num_leaves): slot for slot, node in enumerate(nodes)}
    adds: list[Add] = []
    used: list[int] = []

    def visit(node: Node) -> int | None:
        node = promote(node, num_leaves)
        if node in place:
            used.append(place[node])
            return place[node]
        halves = halve(node, num_leaves)
        if halves is None:
            return None
        left, right = visit(halves[0]), visit(halves[1])
        if left is None or right is None:
            return None
        adds.append(Add(left, right))
        return left

    root = visit(Node(height(num_leaves), 0))
    if num_leaves < 1 or root != 0 or used != list(range(len(nodes))):
        raise ConfigError(
            what=f"partials {list(nodes)} do not add up to {num_leaves} leaves",
            needed="each leaf in exactly one partial, in leaf order",
        )
    return tuple(adds)


@functools.lru_cache(maxsize=256)
def assign(num_leaves: int, num_replicas: int) -> tuple[range, ...]:
    """Share out the leaves in consecutive runs, one per replica, in order.

    The largest run is as small as it can be (a step takes as long as its slowest replica); among
    those the fewest partials are sent, so runs that are whole subtrees win; among those the
    earlier replica takes more.  A run may be empty.

    Args:
        num_leaves: Leaves of a step, at least 1.
        num_replicas: Replicas that share them, at least 1.
    """
    if num_leaves < 1 or num_replicas < 1:
        raise ConfigError(
            what=f"cannot share {num_leaves} leaves among {num_replicas} replicas",
            needed="at least one of each",
        )
    largest = -(-num_leaves // num_replicas)
    cost: dict[range, int] = {}
    choice: list[dict[int, int]] = []  # the size to take, by place (last first) and position
    after = {num_leaves: 0}
    for place in reversed(range(num_replicas)):
        low = max(0, num_leaves - (num_replicas - place) * largest)
        best: dict[int, tuple[int, int]] = {}
        for at in range(low, min(num_leaves, place * largest) + 1):
            for end in range(at, min(num_leaves, at + largest) + 1):
                if end in after:
                    run = range(at, end)
                    if run not in cost:
                        cost[run] = len(partials(run, num_leaves))
                    option = (cost[run] + after[end], at - end)
                    best[at] = min(best.get(at, option), option)
        choice.append({at: -size for at, (_, size) in best.items()})
        after = {at: total for at, (total, _) in best.items()}
    runs: list[range] = []
    at = 0
    for sizes in reversed(choice):
        runs.append(range(at, at + sizes[at]))
        at += sizes[at]
    return tuple(runs)


@functools.lru_cache(maxsize=256)
def plan_reduction(num_leaves: int, runs: tuple[range, ...]) -> ReductionPlan:
    """Return the plan for participants that hold ``runs`` (as ``assign`` gives them).

    Raises:
        ConfigError: The runs do not cover each leaf once.
    """
    nodes = tuple(partials(run, num_leaves) for run in runs)
    return plan_nodes(num_leaves, nodes, runs)


@functools.lru_cache(maxsize=256)
def plan_shares(runs: tuple[range, ...]) -> ReductionPlan:
    """Return the plan in which whoever holds leaves brings one sum of all of them.

    Nobody sends more than the bytes of a ring.  Who holds which leaves decides the order of the
    additions: the bits depend on it, and are the same at all participants.
    """
    held: list[range] = []
    at = 0
    for run in runs:
        held.append(range(at, at + bool(run)))
        at += bool(run)
    return plan_reduction(at, tuple(held))


def plan_nodes(
    num_leaves: int, nodes: Iterable[tuple[Node, ...]], runs: tuple[range, ...] = ()
) -> ReductionPlan:
    """Return the plan for participants that hold ``nodes``, in any order and number."""
    nodes = tuple(nodes)
    slots = sorted(
        ((who, k) for who, held in enumerate(nodes) for k in range(len(held))),
        key=lambda slot: first_leaf(nodes[slot[0]][slot[1]]),
    )
    adds = combine_plan([nodes[who][k] for who, k in slots], num_leaves)
    return ReductionPlan(num_leaves, runs, nodes, tuple(slots), adds)
