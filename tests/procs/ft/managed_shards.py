"""Replicas of two ranks under ``Manager``: what test_managed_shards.py runs.

Usage: managed_shards.py FOLDER GATE   For each line ``REPLICA MODE`` of its input it forks the two
ranks of a replica; MODE is ``fsdp``, ``tp`` or ``wrapped`` (FSDP2 within DistributedDataParallel).
After ``HOLD`` committed steps a replica waits until GATE has been closed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from danaus.ft import DistributedDataParallel, Manager, Optimizer

HOLD, STEPS, RANKS = 3, 12, 2


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))


def inputs(replica: str, step: int) -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(1000 * step + ord(replica)))


def say(name: str, text: str) -> None:
    os.write(1, f"{name} {text}\n".encode())


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def sharded(mode: str) -> nn.Module:
    model = network(seed=1)
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("inside",))
    if mode == "tp":
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return parallelize_module(model, mesh, plan)
    for layer in (model[0], model[2]):  # type: ignore[index]
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(folder: str, gate: int, name: str, mode: str, rank: int) -> None:
    model = sharded(mode)
    plain = torch.optim.AdamW(model.parameters(), lr=0.01)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])
        say(name, f"{rank} loaded {manager.current_step()}")

    manager = Manager(
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        replica_id=name,
        folder=folder,
    )
    wrapped = DistributedDataParallel(manager, model) if mode == "wrapped" else None
    optimizer = Optimizer(manager, plain)
    while manager.current_step() < STEPS:
        if manager.current_step() == HOLD:
            os.read(gate, 1)
        optimizer.zero_grad()
        step = manager.current_step() + 1
        (wrapped or model)(inputs(name, step)).square().mean().backward()
        if wrapped is None:
            manager.allreduce_gradients(model)
        optimizer.step()
        did = "committed" if manager.current_step() == step else "discarded"
        say(name, f"{rank} {did} {step} by {manager.num_participants()}")
    hashed = hashlib.sha256()
    for parameter in model.parameters():
        hashed.update(whole(parameter.detach()).numpy().tobytes())
    say(name, f"{rank} bits {hashed.hexdigest()}")
    values = [round(v, 5) for p in model.parameters() for v in whole(p.detach()).flatten().tolist()]
    say(name, f"{rank} values {' '.join(map(str, values[:20]))}")
    manager.shutdown()


def run_rank(folder: str, gate: int, name: str, mode: str, meeting: str, rank: int) -> None:
    say(name, f"{rank} pid {os.getpid()}")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    train(folder, gate, name, mode, rank)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    folder, gate = sys.argv[1:]
    torch.set_num_threads(1)
    torch.optim.AdamW([nn.Parameter(torch.zeros(1))])  # imports a great deal
    pids = []
    for number, line in enumerate(sys.stdin):
        name, mode = line.split()
        meeting = os.path.join(folder, f"meeting-{number}")
        for rank in range(RANKS):
            pid = os.fork()
            if pid == 0:
                run_rank(folder, int(gate), name, mode, meeting, rank)
                os._exit(0)
            pids.append(pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
