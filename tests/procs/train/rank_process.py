"""One rank of a sharded replica: takes steps, writes a checkpoint, tells what it saw as JSON."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from danaus.model.config import LlamaConfig
from danaus.train.checkpoint import Checkpoints, Writer
from danaus.train.config import DataConfig, OptimConfig, ParallelConfig, StepConfig, TrainConfig
from danaus.train.parallel import ShardPlace
from danaus.train.plain import run_plain
from danaus.train.trainer import Trainer

OLDER_NAME = "reduce_scatter_tensor"


def config(folder: Path, size: int) -> TrainConfig:
    """Return a run whose parameters do not divide by the number of ranks."""
    return TrainConfig(
        model=LlamaConfig(dim=20, num_layers=2, num_heads=2, num_kv_heads=1, ffn_dim=25),
        data=DataConfig(path=str(folder / "text")),
        optim=OptimConfig(lr=1e-2, warmup_steps=2),
        step=StepConfig(
            num_microbatches=6, leaf_size=2, microbatch_size=6, seq_len=16, num_steps=10
        ),
        parallel=ParallelConfig(shard=size),
    )


def count_reductions(trainer: Trainer) -> int:
    """Return how many reduce-scatters one leaf takes."""
    # Called so by FSDP2 of newer torch, or of older.
    name = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else OLDER_NAME
    plain, calls = getattr(dist, name), []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return plain(*args, **kwargs)

    setattr(dist, name, counted)
    try:
        trainer.compute_leaf(1, trainer.leaf_microbatches(0))
    finally:
        setattr(dist, name, plain)
    return len(calls)


def one_by_one(trainer: Trainer) -> None:
    """Apply a step at one rank after the other: a rank may know of a commit before its siblings."""
    step, place = trainer.step + 1, trainer.place
    flat = trainer.compute_leaf(step, trainer.leaf_microbatches(0)).clone()
    flat[-1] = trainer.config.step.num_tokens
    measures = place.gather(trainer.measure(flat))
    for rank in range(place.size):
        if rank == place.rank:
            trainer.apply(step, flat, measures)
        dist.barrier()


def main(rank: int, size: int, folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "store"), size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=30),
    )
    trainer = Trainer(
        config(folder, size), ShardPlace(rank, size, init_device_mesh("cpu", (size,)))
    )
    start = trainer.sha256()
    leaf = [
        {"loss": float(flat[-2]), "num_tokens": float(flat[-1])}
        for flat in (trainer.compute_leaf(1, trainer.leaf_microbatches(k)) for k in range(2))
    ]
    reductions = count_reductions(trainer)
    results: list[Any] = []
    run_plain(trainer, 2, results.append)
    checkpoints = Checkpoints(folder / "checkpoints", identity=trainer.identity)
    written = checkpoints.write(2, trainer.state(), Writer("r0", (1, 1), rank, size))
    places = [tensor.data_ptr() for tensor in trainer.state().values()]
    end = run_plain(trainer, 2, results.append)
    dist.barrier()
    trainer.load(checkpoints.read(checkpoints.latest_valid(), rank=rank, num_ranks=size)[0])
    again = run_plain(trainer, 2)
    trainer.reset()
    anew = (trainer.sha256(), run_plain(trainer, 4))
    one_by_one(trainer)
    in_place = places == [tensor.data_ptr() for tensor in trainer.state().values()]
    dist.destroy_process_group()
    return {
        "start": start,
        "end": end,
        "again": again,
        "anew": anew,
        "in_place": in_place,
        "leaf": leaf,
        "reductions": reductions,
        "losses": [result.loss for result in results],
        "grad_norms": [result.grad_norm for result in results],
        "complete": written.complete,
        "step": trainer.step,
        "num_elements": trainer.num_elements,
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
