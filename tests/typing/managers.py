"""What a checker is told of ``Manager`` and its wrappers.  mypy reads this (``make check``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

import torch
from torch import Tensor, nn

from danaus.ft import (
    DistributedDataParallel,
    DistributedSampler,
    Manager,
    ManagerOptions,
    Optimizer,
    Pending,
    WorldSizeMode,
)


def load(state: dict[str, Any]) -> None: ...


def state() -> dict[str, Any]:
    return {}


def made() -> Manager:
    options: ManagerOptions = {"use_async_quorum": False, "max_retries": None}
    Manager(load_state_dict=load, state_dict=state, min_replica_size=2, replicas=3)  # type: ignore[call-arg]
    Manager("gloo", load, state)  # type: ignore[arg-type]
    Manager(None, load, state, folder="run", timeout="soon")  # type: ignore[arg-type]
    Manager(load_state_dict=load, state_dict=state, **options)
    return Manager(
        load_state_dict=load,
        state_dict=state,
        min_replica_size=2,
        lighthouse_addr="tcp:host:1",
        secret_path="secret",
        timeout=timedelta(seconds=30),
        quorum_timeout=60.0,
        world_size_mode=WorldSizeMode.FIXED_WITH_SPARES,
    )


def stepped(manager: Manager, tensor: Tensor, module: nn.Module) -> None:
    manager.start_quorum()
    manager.wait_quorum(timeout=timedelta(seconds=3))
    assert_type(manager.allreduce(tensor), Pending)
    assert_type(manager.allreduce(tensor, should_quantize=True).wait(timeout=3.0), bool)
    gathered, pending = manager.allgather(tensor)
    assert_type(gathered, list[Tensor])
    assert_type(pending, Pending)
    manager.reduce_scatter(tensor, [tensor], reduce_op=torch.distributed.ReduceOp.SUM)
    manager.allreduce_gradients(module)
    assert_type(manager.errored(), Exception | None)
    assert_type(manager.should_commit(), bool)
    assert_type(manager.participating_rank(), int | None)
    assert_type(manager.replica_ids(), tuple[str, ...])
    assert_type(manager.state_dict(), dict[str, int])


def wrapped(manager: Manager, module: nn.Module) -> None:
    network = DistributedDataParallel(manager, module, bucket_cap_mb=25)
    with network.no_sync():
        network(torch.zeros(1))
    optimizer = Optimizer(manager, torch.optim.SGD(network.parameters(), lr=0.1))
    taken: torch.optim.Optimizer = optimizer
    taken.zero_grad()
    DistributedSampler([1, 2], 0, 3, shuffle=False)  # type: ignore[arg-type]
