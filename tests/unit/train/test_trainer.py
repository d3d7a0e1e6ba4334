"""What the trainer promises: leaves are pure, applying is exact, state goes in and out in place."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from danaus.collectives.folding import LeafFolder
from danaus.collectives.tree import assign, plan_reduction
from danaus.core.errors import ConfigError, InternalError
from danaus.model.config import LlamaConfig
from danaus.train.config import DataConfig, OptimConfig, StepConfig, TrainConfig
from danaus.train.plain import plain_step, run_plain
from danaus.train.trainer import Trainer


def sum_fingerprint(named: Mapping[str, Tensor]) -> str:
    """Stand in for the collectives room's fingerprint."""
    digest = hashlib.sha256()
    for name, tensor in named.items():
        total = int(tensor.reshape(-1).view(torch.int32).sum(dtype=torch.int64))
        digest.update(f"{name} {total}".encode())
    return digest.hexdigest()[:16]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(bytes(range(32, 127)) * 60)
    return path


def small(text: Path, *, microbatches: int = 6, leaf: int = 2, clip: float = 1.0) -> TrainConfig:
    return TrainConfig(
        model=LlamaConfig(dim=16, num_layers=1, num_heads=2, num_kv_heads=1, ffn_dim=24),
        data=DataConfig(path=str(text)),
        optim=OptimConfig(lr=1e-2, warmup_steps=2, clip_norm=clip),
        step=StepConfig(
            num_microbatches=microbatches,
            leaf_size=leaf,
            microbatch_size=2,
            seq_len=16,
            num_steps=10,
        ),
    )


def trainer(config: TrainConfig) -> Trainer:
    return Trainer(config, fingerprint=sum_fingerprint)


def shared_step(replicas: list[Trainer]) -> None:
    """Take one step shared by several trainers, each adding up its own run of leaves."""
    step, num_leaves = replicas[0].step + 1, replicas[0].num_leaves
    runs = assign(num_leaves, len(replicas))
    partials: list[list[Tensor]] = []
    for replica, run in zip(replicas, runs, strict=True):
        folder = LeafFolder(replica.num_elements)
        folder.begin(run, num_leaves)
        for leaf in run:
            folder.add(leaf, replica.compute_leaf(step, replica.leaf_microbatches(leaf)))
        partials.append(folder.partials())
    plan = plan_reduction(num_leaves, runs)
    slots = [partials[who][k] for who, k in plan.slots]
    for add in plan.adds:
        slots[add.into].add_(slots[add.of])
    for replica in replicas:
        assert replica.check(slots[0]) is None
        replica.apply(step, slots[0].clone())


@pytest.mark.parametrize(("microbatches", "leaf"), [(8, 1), (6, 2), (7, 1), (12, 4)])
def test_who_computes_a_leaf_leaves_no_trace(text: Path, microbatches: int, leaf: int) -> None:
    config = small(text, microbatches=microbatches, leaf=leaf)
    expected = run_plain(trainer(config), 4)
    replicas = [trainer(config) for _ in range(4)]
    for members in (3, 1, 4, 2):  # the membership changes at every step (T-4)
        shared_step(replicas[:members])
        for late in replicas[members:]:
            late.load(replicas[0].state())
    assert {each.sha256() for each in replicas} == {expected}
    assert len({each.fingerprint() for each in replicas}) == 1
