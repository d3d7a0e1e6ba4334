"""A small training in plain torch, and replicas of it as processes: what test_loop.py runs.

``forking.py`` forks them, for lines ``REPLICA INCARNATION``; the addresses are where the service
may be.  After ``HOLD`` committed steps a replica waits until the gate has been closed.
"""

from __future__ import annotations

import hashlib
import os

import torch
from torch import Tensor, nn

from danaus.ft import Committed, Loop, Observer, Place, StepPlan, StepResult

PLAN = StepPlan(num_steps=60, num_leaves=4)
HOLD = 8
SEED = 5


def network() -> nn.Module:
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def loss_of(model: nn.Module, step: int, microbatch: int) -> tuple[Tensor, int]:
    draw = torch.Generator().manual_seed(1000 * step + microbatch)
    x = torch.randn(3, 4, generator=draw)
    return (model(x) - x.sum(dim=1, keepdim=True)).square().sum(), len(x)


def bits_of(model: nn.Module) -> str:
    hashed = hashlib.sha256()
    for parameter in model.parameters():
        hashed.update(parameter.detach().numpy().tobytes())
    return hashed.hexdigest()


def plain_bits() -> str:
    """Train in one process, without anything of ours; leaves are summed two by two (T-4)."""
    model = network()
    optimizer = optimizer_of(model)
    for step in range(1, PLAN.num_steps + 1):
        leaves, num_tokens = [], 0
        for microbatch in range(PLAN.num_leaves):
            loss, tokens = loss_of(model, step, microbatch)
            leaves.append(torch.autograd.grad(loss, list(model.parameters())))
            num_tokens += tokens
        for parameter, a, b, c, d in zip(model.parameters(), *leaves, strict=True):
            parameter.grad = ((a + b) + (c + d)) / num_tokens
        optimizer.step()
    return bits_of(model)


class Says(Observer):
    def __init__(self, name: str) -> None:
        self.name = name
        self.num_computed = 0

    def say(self, text: str) -> None:
        os.write(1, f"{self.name} {text}\n".encode())

    def committed(self, line: Committed, result: StepResult) -> None:
        self.say(f"step {line.step} by {len(line.members)}")
        self.say(f"computed {line.step} {self.num_computed}")

    def learned(self, step: int, num_bytes_by_donor: dict[str, int], duration_s: float) -> None:
        self.say(f"learned {step} {sum(num_bytes_by_donor.values())}")


def train_one(folder: str, gate: int, name: str, incarnation: str, *addresses: str) -> None:
    where = ",".join(addresses)
    place = Place.in_folder(folder, name, int(incarnation), quorum_address=where)
    says = Says(name)
    says.say(f"pid {os.getpid()}")
    model = network()
    with Loop(model, optimizer_of(model), place, plan=PLAN, observer=says) as loop:
        for step in loop.steps():
            says.num_computed = 0
            if step.number == HOLD + 1:
                os.read(gate, 1)
            for microbatch in step.microbatches():
                step.backward(*loss_of(model, step.number, microbatch))
                says.num_computed += 1
    says.say(f"bits {bits_of(model)}")
