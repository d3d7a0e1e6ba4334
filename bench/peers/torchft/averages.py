"""Two replicas whose averages are known beforehand.

Usage: averages.py first_step|buckets|divergence   Starts both itself; says what they came to.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from datetime import timedelta
from multiprocessing.connection import Connection

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
from said import end_with_input, leave, say
from torch import nn
from torchft import Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

GRADIENTS = (1.0, 3.0)
FLIPPED_AFTER, STEPS_AFTER = 3, 50
SIZES = (100_000, 200_000, 1_500_000, 70_000, 300_000)
BUCKET_MIB = 1


def manager_of(number: int, lighthouse: str, *, sync: bool = False) -> Manager:
    """Return a manager of a replica of one process."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=2,
        use_async_quorum=not sync,
        timeout=timedelta(seconds=30),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"replica_{number}",
        hostname="127.0.0.1",
    )
    manager._bench_store = store  # lives as long as it
    return manager


def with_state(manager: Manager, module: nn.Module) -> None:
    """Have a module's weights healed."""
    manager.register_state_dict_fn("model", module.load_state_dict, module.state_dict)


def one_weight() -> nn.Linear:
    """Return a model of one weight, zero."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def first_step(number: int, lighthouse: str) -> dict[str, object]:
    """Take one step of SGD at rate 1 from zero; the weight is the mean gradient, negated."""
    model = one_weight()
    manager = manager_of(number, lighthouse)
    with_state(manager, model)
    optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=1.0))
    while manager.current_step() < 1:
        optimizer.zero_grad()
        (model.weight.sum() * GRADIENTS[number]).backward()
        manager.allreduce(model.weight.grad).wait()
        optimizer.step()
    return {"mean": -float(model.weight.detach())}


def divergence(number: int, lighthouse: str) -> dict[str, object]:
    """Flip a bit of replica 1's weight; see whether a step is refused or the weight mended."""
    model = one_weight()
    manager = manager_of(number, lighthouse)
    with_state(manager, model)
    optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.1))
    refused = 0
    while manager.current_step() < FLIPPED_AFTER + STEPS_AFTER:
        optimizer.zero_grad()
        (model.weight.sum() * GRADIENTS[number]).backward()
        manager.allreduce(model.weight.grad).wait()
        before = manager.current_step()
        optimizer.step()
        now = manager.current_step()
        refused += now == before and now > FLIPPED_AFTER
        if number and now == FLIPPED_AFTER and before < now:
            model.weight.detach().view(torch.int32).bitwise_xor_(1 << 5)
    return {"refused": refused, "weight": float(model.weight.detach())}


class Tensors(nn.Module):
    """Tensors of the sizes that are averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in SIZES])


def buckets(number: int, lighthouse: str) -> dict[str, object]:
    """Average what differs at each replica by DiLoCo in buckets; the outer rate is 1."""
    model = Tensors()
    manager = manager_of(number, lighthouse, sync=True)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    outer = torch.optim.SGD(model.parameters(), lr=1.0)
    options = {"sync_every": 1, "use_bucketization": True, "bucket_cap_mb": BUCKET_MIB}
    drawn = [_drawn(each) for each in (0, 1)]
    with DiLoCo(manager, [model], inner, outer, **options):
        before = manager.current_step()
        for _ in range(3):  # the first ones may heal
            for parameter, value in zip(model.each, drawn[number], strict=True):
                parameter.grad = value.clone()
            start = [parameter.detach().clone() for parameter in model.each]
            inner.step()
        committed = manager.current_step() > before
    moved = [began - parameter.detach() for began, parameter in zip(start, model.each, strict=True)]
    means = [(a + b) / 2 for a, b in zip(*drawn, strict=True)]
    close = [torch.allclose(a, b, atol=1e-5) for a, b in zip(moved, means, strict=True)]
    return {"num_exact": sum(close), "num_tensors": len(close), "committed": committed}


def _drawn(member: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(member)
    return [torch.randn(size, generator=draw) for size in SIZES]


WHAT = {"first_step": first_step, "divergence": divergence, "buckets": buckets}


def run(what: str, number: int, lighthouse: str, pipe: Connection) -> None:
    """Be one of the two."""
    torch.set_num_threads(1)
    pipe.send(WHAT[what](number, lighthouse))
    pipe.recv()  # until both are done: the other may still need this one's servers
    leave()


def main() -> None:
    """Start both, and say what they came to."""
    what = sys.argv[1]
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=2)
    context = multiprocessing.get_context("spawn")
    pipes, replicas = [], []
    for number in (0, 1):
        near, far = context.Pipe()
        facts = (what, number, lighthouse.address(), far)
        replicas.append(context.Process(target=run, args=facts, daemon=True))
        replicas[-1].start()
        pipes.append(near)
    end_with_input()
    told = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send("done")
    if what == "divergence":
        same = told[0]["weight"] == told[1]["weight"]
        caught = same or any(each["refused"] for each in told)
        say(caught=caught, steps_after=STEPS_AFTER)
    else:
        say(**min(told, key=lambda each: each.get("num_exact", 0)))
    for replica in replicas:
        replica.join(10)
    leave()


if __name__ == "__main__":
    main()
