"""Replicas of two ranks: FSDP2 and tensor parallelism inside, ``Manager`` between them."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from tests.procs.ft.forked_run import Run
from tests.procs.ft.managed_shards import HOLD, RANKS, STEPS, inputs, network

pytestmark = pytest.mark.timeout(240)


class ShardedRun(Run):
    script = ("managed_shards.py",)
    limit_s = 200.0
    options = ("--expected-replicas=2",)


@pytest.fixture
def run(tmp_path):
    started = ShardedRun(tmp_path / "run")
    yield started
    started.close()


def expected() -> list[float]:
    """Train on both batches in one process; another order of additions, so not the same bits."""
    model = network(seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        for name in "ab":
            (model(inputs(name, step)).square().mean() / 2).backward()
        optimizer.step()
    return [each for parameter in model.parameters() for each in parameter.flatten().tolist()][:20]


def ends(run, name, word):
    return [run.said(name, f"{rank} {word}").split()[2:] for rank in range(RANKS)]


@pytest.mark.parametrize("mode", ["fsdp", pytest.param("wrapped", marks=pytest.mark.slow), "tp"])
def test_two_replicas_of_two_ranks_train_as_one_process_does(run, mode):
    for name in "ab":
        run.start(name, mode)
    run.open_gate()
    bits = [ends(run, name, "bits") for name in "ab"]
    assert bits[0] == bits[1]
    assert bits[0][0] == bits[0][1], "the ranks of a replica have gathered the same weights"
    values = [float(each) for each in ends(run, "a", "values")[0]]
    torch.testing.assert_close(torch.tensor(values), torch.tensor(expected()), rtol=1e-3, atol=1e-4)
    for name in "ab":
        assert f"0 committed {STEPS} by 2" in run.lines[name]


@pytest.mark.slow
def test_a_sharded_replica_is_killed_and_learns_its_shards(run):
    for name in "ab":
        run.start(name, "fsdp")
    for rank in range(RANKS):
        run.all_say(f"{rank} committed {HOLD} by 2", *"ab")
    for rank in range(RANKS):
        os.kill(int(run.said("b", f"{rank} pid").split()[2]), signal.SIGKILL)
    run.start("b", "fsdp")
    run.open_gate()
    loaded = [int(each[0]) for each in ends(run, "b", "loaded")]
    assert loaded[0] == loaded[1] >= HOLD
    assert ends(run, "a", "bits") == ends(run, "b", "bits")
