"""Three replicas train, one is killed, it heals; the weights are those of an undisturbed training.

    python examples/kill_and_heal.py

Each replica is an actor in a process of its own.  Its loop is plain PyTorch under a ``Loop``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from danaus.actor import (
    Actor,
    ActorMesh,
    HostMesh,
    MeshFailure,
    SupervisionError,
    context,
    endpoint,
    shutdown_context,
    this_proc,
)
from danaus.ft import Loop, Observer, Place, StepPlan, defer_compiler
from danaus.job import LocalJob

PLAN = StepPlan(num_steps=100, num_leaves=6)
KILLED_IN_STEP = 40


def loss_of(model: nn.Module, step: int, microbatch: int) -> tuple[Tensor, int]:
    """Return the summed loss of a microbatch, a function of these numbers, and its size."""
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(1000 * step + microbatch))
    return (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().sum(), len(inputs)


class Says(Observer):
    """Tells where a replica has its state from."""

    def learned(self, step: int, num_bytes_by_donor: dict[str, int], duration_s: float) -> None:
        """The state of a step came from peers."""
        given = ", ".join(f"{n} bytes from {name}" for name, n in num_bytes_by_donor.items())
        print(f"step {step} was learned: {given}", flush=True)


class Replica(Actor):
    """One replica; the loop is yours.

    Args:
        folder: Where all processes of the run meet.
        name: Of the replica.
        incarnation: How often it was started before.
        fatal: The step in which it kills itself.
    """

    def __init__(self, folder: Path, name: str, incarnation: int, fatal: int | None) -> None:
        self.folder, self.name, self.incarnation, self.fatal = folder, name, incarnation, fatal

    @endpoint
    def train(self) -> str:
        """Train to the end; return the SHA-256 of the weights."""
        torch.set_num_threads(1)
        torch.manual_seed(0)
        defer_compiler()  # a successor is there sooner
        model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        with Loop(model, optimizer, self.place(), plan=PLAN, observer=Says()) as loop:
            for step in loop.steps():
                for microbatch in step.microbatches():
                    step.backward(*loss_of(model, step.number, microbatch))
                    if step.number == self.fatal:
                        os.kill(os.getpid(), signal.SIGKILL)
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        return hashlib.sha256(weights.numpy().tobytes()).hexdigest()

    def place(self) -> Place:
        """Say where the others find this process, and who sees it die."""
        proc = context().proc
        return dataclasses.replace(
            Place.in_folder(self.folder, self.name, self.incarnation),
            agent_address=proc.agent_address,
            process_id=proc.process_id,
        )


class Owner(Actor):
    """Starts replicas, and starts one again that dies."""

    def __init__(self, hosts: HostMesh, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder

    @endpoint
    async def run(self, fatal: dict[str, int | None]) -> list[str]:
        """Train with these replicas, each with the step in which it dies."""
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(self.see_through(*each)) for each in fatal.items()]
        return [each.result() for each in runs]

    async def see_through(self, name: str, fatal: int | None) -> str:
        """Run one replica to its end, in two lives if need be."""
        try:
            return await self.start(name, 0, fatal).train.call_one()
        except SupervisionError as error:
            print(f"step {fatal}: {error}", flush=True)
        return await self.start(name, 1, None).train.call_one()

    def start(self, name: str, incarnation: int, fatal: int | None) -> ActorMesh[Replica]:
        """Start a replica in a process of its own."""
        procs = self.hosts.spawn_procs(name=f"{self.folder.name}-{name}", incarnation=incarnation)
        procs.logging_option(stream_to_client=True)
        return procs.spawn("replica", Replica, self.folder, name, incarnation, fatal)

    def __supervise__(self, failure: MeshFailure) -> bool:
        """``see_through`` deals with it."""
        return failure.kind == "signal"


def train(hosts: HostMesh, folder: Path, **fatal: int | None) -> str:
    """Run a training from beginning to end; return the bits that all its replicas end with."""
    service = [sys.executable, "-m", "danaus.quorum.service", "--run", str(folder)]
    service.append(f"--expected-replicas={len(fatal)}")
    # One secret for all: the service asks the host agent at once who has died.
    folder.mkdir(mode=0o700)
    (folder / "secret").hardlink_to(folder.parent / "secret")
    with subprocess.Popen(service, stdin=subprocess.PIPE):  # it ends when its input does
        owner = this_proc().spawn("owner", Owner, hosts, folder)
        (bits,) = set(owner.run.call_one(fatal).get(timeout=60.0))
    return bits


def main() -> None:
    """Train alone and undisturbed, then with three replicas of which one is killed."""
    preload = ("torch", "danaus.ft.loop")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalJob(preload=preload, secret_path=Path(folder) / "secret") as job,
    ):
        hosts = job.state().hosts.slice(hosts=0)
        alone = train(hosts, Path(folder) / "alone", a=None)
        print(f"one replica, undisturbed: {alone}")
        disturbed = train(hosts, Path(folder) / "disturbed", a=None, b=KILLED_IN_STEP, c=None)
        print(f"three, one killed:        {disturbed}")
        shutdown_context()
    print("SAME BITS" if alone == disturbed else "THE BITS DIFFER")
    sys.exit(alone != disturbed)


if __name__ == "__main__":
    main()
