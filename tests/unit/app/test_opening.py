"""The first lines of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.app.opening import cost_of_losses, most_partials, opening
from danaus.app.settings import RunConfig
from danaus.train.config import ParallelConfig, StepConfig


def test_what_is_trained_on_what_is_said() -> None:
    *lines, cost = opening(RunConfig(), Path("runs/a"), "a book, 7 bytes of 1 file")

    assert lines == [
        "folder runs/a",
        "text   a book, 7 bytes of 1 file",
        "model  Llama, 377,472 parameters (2 layers of width 128)",
        "steps  400 of 2,048 tokens, by 3 replicas of 1 process each",
        "       gradients travel as up to 2 partial sums a replica, 1.5 times the bytes of a ring",
    ]
    assert cost.strip() == (
        "with 1 replica lost a step takes up to 1.33 times as long, with 2 lost up to 2.67 times "
        "as long (few replicas share it)"
    )


def test_sums_without_an_order_are_said_to_be_such() -> None:
    config = RunConfig(step=StepConfig(bits="off"))
    lines = list(opening(config, Path("a"), "t"))

    assert "each replica sends one sum of what it computed: other bits with other members" in (
        line.strip() for line in lines
    )


def test_one_replica_has_nothing_to_lose() -> None:
    config = RunConfig(replicas=1, parallel=ParallelConfig(shard=2))

    assert list(opening(config, Path("a"), "t"))[3:] == [
        "steps  400 of 2,048 tokens, by 1 replica of 2 processes"
    ]


@pytest.mark.parametrize(
    ("leaves", "replicas", "partials"), [(8, 1, 1), (8, 2, 1), (8, 4, 1), (8, 3, 2), (7, 3, 1)]
)
def test_a_replica_sends_one_partial_for_each_subtree_that_it_holds(
    leaves, replicas, partials
) -> None:
    assert most_partials(leaves, replicas) == partials


@pytest.mark.parametrize(
    ("replicas", "leaves", "costs"),
    [
        (3, 8, {1: 4 / 3, 2: 8 / 3}),
        (2, 8, {1: 2.0}),
        (3, 4, {1: 1.0, 2: 2.0}),
        (1, 8, {}),
    ],
)
def test_a_loss_costs_what_the_longest_share_grows_by(replicas, leaves, costs) -> None:
    config = RunConfig(replicas=replicas, step=StepConfig(num_microbatches=leaves))

    assert dict(cost_of_losses(config)) == pytest.approx(costs)


def test_a_warning_says_whether_more_leaves_would_help() -> None:
    uneven = RunConfig(replicas=5, step=StepConfig(num_microbatches=5))
    even = RunConfig(replicas=5, step=StepConfig(num_microbatches=20))

    assert "leaves are shared unevenly" in list(opening(uneven, Path("a"), "t"))[-1]
    assert list(opening(even, Path("a"), "t"))[-1].endswith("with 2 lost up to 1.75 times as long")


def test_a_batch_that_shrinks_costs_nothing() -> None:
    assert not dict(cost_of_losses(RunConfig(step=StepConfig(batch="elastic"))))
