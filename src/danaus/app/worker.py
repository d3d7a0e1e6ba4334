"""The worker of a replica, as its controller knows it: an actor, and what it is told.

Owns ``ReplicaWorker`` and ``WorkerJob``.  What the actor does lies in ``app.training``, which loads
torch; a controller never does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from danaus.actor.attempt import Attempt
from danaus.actor.endpoints import Actor, concurrent_endpoint, endpoint
from danaus.actor.notice import on_terminate
from danaus.app.chaos_fault import Fault
from danaus.app.run_result import WorkerResult
from danaus.core.errors import ConfigError, InternalError
from danaus.ft.audit import NEVER, AuditPlan
from danaus.ft.observer import Observer
from danaus.ft.stragglers import USUAL, PaceLimits
from danaus.platform.choice import choose
from danaus.train.config import TrainConfig

TRAINING = "danaus.app.training"
"""What a nursery imports before it forks workers, and torch with it (P-6)."""


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """What one replica's workers are told.

    Args:
        run_dir: The run folder.
        quorum_address: Where the quorum service listens.
        replica_id: Stable name.
        num_replicas: Replicas of the run when all are there.
        num_ranks: Processes of the replica.
        incarnation: Of this start.
        train: The run's training settings.
        niceness: Added to the scheduling priority, for a run that should stand back.
        pace: When a member counts as slow.
        audit: Which leaves are computed twice.
        rank: Of this process; None: its rank among those that were started with it.
        rejoins: Whether a process outlives a sibling, and waits for the next order then (H-3).
        lost_rank: The rank in whose place a process was started; None: all were started.
        observers: Made in the worker, given the trainer's named state; for faults on purpose.
    """

    run_dir: str
    quorum_address: str
    replica_id: str
    num_replicas: int
    num_ranks: int
    incarnation: int
    train: TrainConfig
    niceness: int = 0
    pace: PaceLimits = USUAL
    audit: AuditPlan = NEVER
    rank: int | None = None
    rejoins: bool = False
    lost_rank: int | None = None
    observers: tuple[Callable[[Any], Observer], ...] = ()


class ReplicaWorker(Actor):
    """Train one rank of one replica.

    Args:
        job: What the replica is told.
    """

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._training: Any = None
        self._prepared = False
        self._outcome: futures.Future[WorkerResult] | None = None
        on_terminate(lambda: self._leave("it was asked to end (SIGTERM)"))

    @endpoint
    def prepare(self) -> None:
        """Meet the other ranks and build what is trained; the controller limits how long.

        What is prepared stays so: another controller may ask again.
        """
        if self._prepared:
            return
        choice = choose(self._job.train.platform)  # first: it says what is wrong with a torch
        self._training = import_module(TRAINING).RankTraining(self._job, choice)
        self._training.prepare()
        self._prepared = True

    @concurrent_endpoint
    def here(self) -> None:
        """Answer: another controller asks whether the worker is there."""

    @endpoint
    def adopt(self, job: WorkerJob) -> None:
        """Be this replica from now on: what is prepared is built for any.

        Raises:
            InternalError: Nothing is prepared.
        """
        if self._training is None:
            raise InternalError("H-4", "a worker was told who it is before it was prepared")
        self._job = job
        self._training.adopt(job)

    @endpoint
    def train(self) -> WorkerResult:
        """Train until every member has committed the run's last step.

        Raises:
            DanausError: Of scope ``JOB``: the run cannot go on.
        """
        if self._training is None:
            raise InternalError("P-6", "a worker was told to train before it was prepared")
        if self._outcome is None:
            self._outcome = futures.Future()
            with Attempt() as attempt:
                self._outcome.set_result(self._training.train())
            if attempt.error is not None:
                self._outcome.set_exception(attempt.error)
        return self._outcome.result()

    @concurrent_endpoint
    def join(self) -> WorkerResult | None:
        """Return what the training comes to that an earlier controller began; None: none did.

        Raises:
            DanausError: As ``train`` does.
        """
        return self._outcome.result() if self._outcome is not None else None

    @concurrent_endpoint
    def leave(self, reason: str) -> None:
        """Leave the run after the step in hand; this process ends by itself then, with code 0."""
        self._leave(reason)

    def _leave(self, reason: str) -> None:
        if self._training is None:
            raise SystemExit(0)
        self._training.leave(reason)

    @concurrent_endpoint
    def rejoin(self, job: WorkerJob) -> None:
        """Give the name up and go on under that of ``job``: a sibling is lost (H-3).

        Returns once the training has left what it was at; it goes on when all ranks have met.

        Raises:
            DeadlinePassed: It does not leave it.
        """
        if self._training is None:
            raise InternalError("H-3", "a worker was to go on before it was prepared")
        self._training.rejoin(job)
        self._job = job

    @concurrent_endpoint
    def strike(self, fault: Fault) -> None:
        """Strike this process, while it trains, with a fault that was resolved.

        Raises:
            ConfigError: It does not train yet.
        """
        if self._training is None:
            raise ConfigError(f"{self._job.replica_id} cannot be struck yet", "it must train")
        self._training.strike(fault)
