"""The worker of a replica: one actor per process that trains until the run is done.

Owns how a trainer, a participant and the run folder's files come together in a worker process.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from danaus.actor.endpoints import Actor, endpoint
from danaus.actor.process_runtime import context
from danaus.app.recorder import Recorder
from danaus.app.run_result import WorkerResult
from danaus.app.shards import Shards
from danaus.core.errors import InternalError
from danaus.ft.ledger import Ledger, Opened
from danaus.ft.observer import Observer
from danaus.ft.participant import Participant, StepPlan
from danaus.ft.place import Place
from danaus.platform.choice import choose
from danaus.train.config import TrainConfig
from danaus.train.replica import ReplicaWork


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """What one replica's workers are told.

    Args:
        run_dir: The run folder.
        sockets: A folder whose path is short enough for unix sockets.
        quorum_address: Where the quorum service listens.
        replica_id: Stable name.
        num_replicas: Replicas of the run when all are there.
        num_ranks: Processes of the replica.
        incarnation: Of this start.
        train: The run's training settings.
        niceness: Added to the scheduling priority, for a run that should stand back.
        observers: Made in the worker, given the trainer's named state; for faults on purpose.
    """

    run_dir: str
    sockets: str
    quorum_address: str
    replica_id: str
    num_replicas: int
    num_ranks: int
    incarnation: int
    train: TrainConfig
    niceness: int = 0
    observers: tuple[Callable[[ReplicaWork], Observer], ...] = ()


class ReplicaWorker(Actor):
    """Train one rank of one replica.

    Args:
        job: What the replica is told.
    """

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._choice = choose(job.train.platform)
        self._open = contextlib.ExitStack()
        self._work: ReplicaWork | None = None

    @endpoint
    def prepare(self) -> None:
        """Meet the other ranks and build what is trained; the controller limits how long."""
        job = self._job
        if job.niceness:
            os.nice(job.niceness)
        self._choice.platform.pin(job.train.platform)
        place = self._place()
        shards = self._open.enter_context(Shards(place, job.sockets))
        checkpoints = Path(job.run_dir) / "checkpoints"
        self._work = ReplicaWork.build(job.train, place, shards=shards.place, folder=checkpoints)

    @endpoint
    def train(self) -> WorkerResult:
        """Train until every member has committed the run's last step.

        Raises:
            DanausError: Of scope ``JOB``: the run cannot go on.
        """
        with self._open:
            if self._work is None:
                raise InternalError("P-6", "a worker was told to train before it was prepared")
            return self._train(self._work)

    def _train(self, work: ReplicaWork) -> WorkerResult:
        job, place, run_dir = self._job, work.place, Path(self._job.run_dir)
        steps = job.train.step
        elastic = job.num_replicas if steps.batch == "elastic" else 0
        plan = StepPlan(steps.num_steps, steps.num_leaves, steps.leaf_size, elastic)
        opened = Opened(
            at=time.time(),
            member=place.member,
            identity=work.identity,
            samples_per_data_epoch=work.samples_per_data_epoch,
            environment=self._choice.platform.environment(),
        )
        path = run_dir / "ledger" / f"{place.replica_id}-{place.rank}.jsonl"
        others = tuple(make(work) for make in job.observers)
        with (
            Ledger(path, opened) as ledger,
            Recorder(
                place, work, run_dir, position=context().proc.position, others=others
            ) as recorder,
            Participant(place, work, plan, ledger=ledger, observer=recorder) as participant,
        ):
            recorder.started(self._choice, participant.snapshot_room_bytes)
            for attempt in participant.attempts():
                for leaf in attempt.leaves():
                    attempt.add(leaf, work.compute_leaf(attempt.step, leaf.microbatches))
            ledger.sync()
            return WorkerResult(participant.committed_step, work.sha256())

    def _place(self) -> Place:
        job, proc = self._job, context().proc
        rank = proc.rank
        return Place(
            replica_id=job.replica_id,
            rank=rank,
            num_ranks=job.num_ranks,
            incarnation=job.incarnation,
            quorum_address=job.quorum_address,
            secret_path=str(Path(job.run_dir) / "secret"),
            data_address=f"unix:{job.sockets}/{job.replica_id}-{rank}-{job.incarnation}",
            agent_address=proc.agent_address,
            process_id=proc.process_id,
        )
