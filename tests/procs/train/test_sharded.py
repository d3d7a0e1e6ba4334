"""A replica of several processes trains as one process does (T-4, T-5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.procs.train.rank_process import config

from danaus.train.config import ParallelConfig, TrainConfig
from danaus.train.plain import run_plain
from danaus.train.trainer import StepResult, Trainer

ROOT = Path(__file__).parents[3]


def run_ranks(size: int, folder: Path) -> list[dict[str, Any]]:
    """Run a replica of ``size`` processes; return what each of them tells."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.procs.train.rank_process"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(size), str(folder)],
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
        )
        for rank in range(size)
    ]
    try:
        told = [rank.communicate(timeout=50)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * size
    return [json.loads(each) for each in told]


def alone(sharded: TrainConfig) -> tuple[Trainer, list[StepResult]]:
    """Run the same in one process."""
    torch.set_num_threads(1)
    trainer, results = Trainer(replace(sharded, parallel=ParallelConfig())), []
    run_plain(trainer, 4, results.append)
    return trainer, results


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_sharded_replica_trains_as_one_process(size: int, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(bytes(range(32, 127)) * 60)
    ranks = run_ranks(size, tmp_path)
    trainer, results = alone(config(tmp_path, size))
    # The sums are in another order than in one process: alike, not the same bits.
    for rank in ranks:
        assert rank["losses"] == pytest.approx([each.loss for each in results], rel=1e-5)
        assert rank["grad_norms"] == pytest.approx([each.grad_norm for each in results], rel=1e-4)
        assert [leaf["num_tokens"] for leaf in rank["leaf"]] == [2 * 6 * 16] * 2
    for name in ("losses", "grad_norms", "leaf"):
        assert all(rank[name] == ranks[0][name] for rank in ranks)
    parts = sum(rank["num_elements"] - 2 for rank in ranks)
    assert parts == trainer.num_elements - 2
    # Two blocks and the rest, each reduced once per leaf though a leaf is two microbatches.
    assert [rank["reductions"] for rank in ranks] == [3] * size
    # The last to write makes the checkpoint whole; going on from it gives the same bits.
    assert any(rank["complete"] for rank in ranks)
    for rank in ranks:
        assert rank["again"] == rank["end"]
        assert rank["anew"] == [rank["start"], rank["end"]]
        assert rank["in_place"]
        assert rank["step"] == 5, "applied by one rank after the other"
