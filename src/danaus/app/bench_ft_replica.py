"""One replica of ``danaus bench ft``: a small loop of one's own, under an actor or by itself.

Owns ``train`` and the two ways to run it: the actor ``BenchReplica``, forked from
a nursery and seen to by a host agent, and ``python -m danaus.app.bench_ft_replica``, a plain
process that imports torch first.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from danaus.actor.endpoints import Actor, endpoint
from danaus.actor.process_runtime import context
from danaus.app.bench_ft_job import ReplicaJob
from danaus.app.bench_processes import end_with_input, say
from danaus.ft.deferred_compiler import defer_compiler
from danaus.ft.ledger import Committed
from danaus.ft.loop import Loop
from danaus.ft.observer import Moment, Observer
from danaus.ft.place import Place
from danaus.ft.step_plan import StepPlan
from danaus.ft.work import StepResult
from danaus.wire.position import Phase, PositionBlock

_ROWS = 8


def network(width: int) -> nn.Sequential:
    """Return three layers, the same everywhere."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def batch(width: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, always the same: it is not the data that is measured."""
    return torch.randn(_ROWS, width), torch.randn(_ROWS, width)


class _Log(Observer):
    """A line of facts for each step, and the position for the host agent (P-3)."""

    def __init__(self, path: str, position: PositionBlock | None) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._position = position
        self._applied_at = self._voting_at = self._between_s = self._vote_s = 0.0

    def say(self, **facts: object) -> None:
        os.write(self._fd, json.dumps({"t": time.monotonic(), **facts}).encode() + b"\n")

    def entered(self, step: int, phase: Phase, number: int) -> None:
        if self._position is not None:
            self._position.write(step, phase, number)
        if number:
            return
        if phase is Phase.VOTE:
            self._voting_at = time.monotonic()
        elif phase is Phase.COMPUTE and self._applied_at:
            self._between_s = time.monotonic() - self._applied_at

    def moment(self, moment: Moment, step: int) -> None:
        if moment is Moment.VOTED:
            self._vote_s = time.monotonic() - self._voting_at
        elif moment is Moment.APPLIED:
            self._applied_at = time.monotonic()

    def committed(self, line: Committed, result: StepResult) -> None:
        self.say(
            step=line.step,
            members=len(line.members),
            epoch=str(line.epoch),
            between_s=self._between_s,
            vote_s=self._vote_s,
            durations_s=line.durations_s,
        )


def train(job: ReplicaJob, place: Place, position: PositionBlock | None = None) -> None:
    """Train to the end of the run; while a file named after the replica is there, hang."""
    log = _Log(job.log, position)
    log.say(pid=os.getpid())
    torch.set_num_threads(1)
    defer_compiler()
    model = network(job.width)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = batch(job.width)
    hang = Path(job.folder) / f"hang-{job.name}"
    plan = StepPlan(job.num_steps, job.num_leaves, bits=job.bits)
    with Loop(model, optimizer, place, plan=plan, observer=log) as loop:
        for step in loop.steps():
            for _ in step.microbatches():
                if job.compute_s:
                    time.sleep(job.compute_s)
                while hang.exists():
                    time.sleep(1.0)
                step.backward((model(inputs) - targets).square().sum(), _ROWS)


class BenchReplica(Actor):
    """A replica that a host agent watches.

    Args:
        job: What it is told.
    """

    def __init__(self, job: ReplicaJob) -> None:
        self._job = job

    @endpoint
    def train(self) -> None:
        """Train to the end of the run."""
        job, proc = self._job, context().proc
        place = dataclasses.replace(
            Place.in_folder(job.folder, job.name, job.incarnation),
            agent_address=proc.agent_address,
            process_id=proc.process_id,
        )
        train(job, place, proc.position)


def main() -> None:
    """Be a plain process; its only argument is the job, as JSON."""
    end_with_input()
    job = ReplicaJob(**json.loads(sys.argv[1]))
    train(job, Place.in_folder(job.folder, job.name, job.incarnation))
    say(done=job.num_steps)


if __name__ == "__main__":
    main()
