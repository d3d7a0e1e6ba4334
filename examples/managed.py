"""The classic loop of TorchFT, with another import line: two replicas, one is killed and heals.

    python examples/managed.py

Each replica is a process with a batch of its own.  Gradients are averaged over whoever is there;
a step commits at all of them or at none.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing.context import ForkProcess

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from danaus.ft import DistributedDataParallel, DistributedSampler, Manager, Optimizer

STEPS, KILLED_IN_STEP = 60, 20
FORK = multiprocessing.get_context("fork")


def train(folder: str, number: int, fatal: int) -> None:
    """Train as replica ``number``; die in step ``fatal``."""
    torch.set_num_threads(1)
    torch.manual_seed(number)  # the first weights differ: all take those of the first replica
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 1))
    plain = torch.optim.AdamW(model.parameters(), lr=0.01)

    def load_state_dict(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optim"])
        print(f"replica {number} learned the state of step {manager.current_step()}", flush=True)

    manager = Manager(
        load_state_dict=load_state_dict,
        state_dict=lambda: {"model": model.state_dict(), "optim": plain.state_dict()},
        min_replica_size=1,
        replica_id=f"replica-{number}",
        folder=folder,  # on one machine; else lighthouse_addr= and secret_path=
    )
    network = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, plain)

    inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(dataset, replica_rank=number, num_replica_groups=2)
    batches = DataLoader(dataset, batch_size=16, sampler=sampler)

    def is_done() -> bool:
        # The same at both after each step; with 60 steps alone the other would come too late.
        return manager.current_step() >= STEPS and manager.num_participants() == 2

    while not is_done():
        for batch, target in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(batch), target)
            loss.backward()  # type: ignore[no-untyped-call]
            if manager.current_step() + 1 == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            if is_done():
                break
    steps = manager.current_step()
    manager.shutdown()
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    bits = hashlib.sha256(weights).hexdigest()[:16]
    print(f"replica {number}: {steps} steps, {manager.batches_committed()} batches, {bits}")


def start(folder: str, number: int, fatal: int = 0) -> ForkProcess:
    """Start a replica as a process; torch is imported once."""
    replica = FORK.Process(target=train, args=(folder, number, fatal))
    replica.start()
    return replica


def main() -> None:
    """Start the quorum service and two replicas; start the one that dies again."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "danaus.quorum.service", "--run", folder]
        service = subprocess.Popen([*command, "--expected-replicas=2"], stdin=subprocess.PIPE)
        survivor, victim = start(folder, 0), start(folder, 1, KILLED_IN_STEP)
        victim.join()
        print(f"replica 1 ended with {victim.exitcode}; starting it again", flush=True)
        again = start(folder, 1)
        for replica in (survivor, again):
            replica.join()
        service.communicate()
    if survivor.exitcode or again.exitcode:
        sys.exit("a replica has failed")


if __name__ == "__main__":
    main()
