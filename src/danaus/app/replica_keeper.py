"""Keeps one replica alive: starts its workers, and starts them again when they fail.

Owns one replica's incarnations.  An incarnation is on disk before its processes start, so that
no two processes ever carry the same one.  A replica that lost a rank is stopped whole and started
again (H-3 will keep its siblings).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from danaus.actor.failure import MeshFailure
from danaus.actor.future import Future
from danaus.actor.mesh import HostMesh, ProcMesh
from danaus.actor.restart import RestartBudget
from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import WorkerResult
from danaus.app.settings import RunConfig
from danaus.app.worker import ReplicaWorker, WorkerJob
from danaus.core.errors import (
    ActorError,
    DanausError,
    DeadlinePassed,
    InternalError,
    RestartsExhausted,
    Scope,
    SupervisionError,
)
from danaus.core.journal import Journal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a replica.

    Args:
        incarnation: Which.
        pids: Process ids by rank.
    """

    incarnation: int
    pids: tuple[int, ...]


class ReplicaKeeper:
    """Run one replica until it is done.

    Args:
        replica_id: Which.
        folder: The run's folder, held by this process.
        journal: Where starts and exits are written.
        config: How often it may be started again, and how long a start may take.
        host: Gives the host to start on, a new one where the last was lost.
        job: Makes the workers' orders for an incarnation.
    """

    def __init__(
        self,
        replica_id: str,
        folder: RunFolder,
        journal: Journal,
        *,
        config: RunConfig,
        host: Callable[[], Awaitable[HostMesh]],
        job: Callable[[str, int], WorkerJob],
    ) -> None:
        self.replica_id = replica_id
        self._folder, self._journal = folder, journal
        self._budget = RestartBudget(config.restart.policy())
        self._start_limit_s = config.start_limit_s
        self._host, self._job = host, job
        self._procs: ProcMesh | None = None
        self._failed = asyncio.Event()
        self._failure: MeshFailure | None = None
        self._stopping = False
        self.started: Start | None = None
        self.num_restarts = 0

    async def run(self) -> tuple[WorkerResult, ...]:
        """Train to the end, through failures; return each rank's result.

        Raises:
            RestartsExhausted: It fails too often.
        """
        while True:
            try:
                return await self._train_once()
            except DanausError as error:
                # A broken promise is one process's: under a new incarnation it learns (T-1).
                if error.scope is Scope.JOB and not isinstance(error, InternalError):
                    raise
                why = str(error)
            if self._failure is None and not self._stopping:
                # A death is written down where it is heard of.
                self._journal.record(Event.START_FAILED, replica=self.replica_id, reason=why)
            await self._end(expected=False)
            if self._stopping:
                return ()
            await self._wait_for_budget(why)

    async def _train_once(self) -> tuple[WorkerResult, ...]:
        """Start the workers once, and train.

        Raises:
            DanausError: Any of them failed.
        """
        self._failed.clear()
        self._failure = None
        incarnation = self._folder.next_incarnation(self.replica_id)
        job = self._job(self.replica_id, incarnation)
        host = await self._host()
        self._procs = procs = host.spawn_procs(
            per_host={"ranks": job.num_ranks}, name=self.replica_id, incarnation=incarnation
        )
        workers = procs.spawn("worker", ReplicaWorker, job)
        try:
            async with asyncio.timeout(self._start_limit_s):
                await self._unless_failed(procs.initialized)
                self.started = Start(incarnation, tuple(procs.pids().values()))
                self._record_start(procs, incarnation)
                await self._unless_failed(workers.prepare.call())
            values = await self._unless_failed(workers.train.call())
        except TimeoutError:
            raise DeadlinePassed(f"{self.replica_id} to start", self._start_limit_s) from None
        except ExceptionGroup as raised:
            raise worst(raised) from None
        return tuple(values.values())

    async def _unless_failed(self, future: Future[T]) -> T:
        """Return what ``future`` comes to.

        Raises:
            SupervisionError: The replica failed, or was stopped, before.
        """
        call = future.as_asyncio()
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            await asyncio.wait((call, failed), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise SupervisionError(self.replica_id, str(self._failure or "it was stopped"))
            return await call
        finally:
            failed.cancel()
            call.cancel()

    def failed(self, failure: MeshFailure) -> bool:
        """Hear of a failure; tell whether it is this replica's."""
        if self._procs is None or failure.mesh_id != self._procs.mesh_id:
            return False
        self._failure = self._failure or failure
        self._failed.set()
        self._record_exits(failure)
        return True

    async def stop(self) -> None:
        """End the workers, and do not start them again."""
        self._stopping = True
        self._failed.set()
        await self._end(expected=True)

    async def _end(self, *, expected: bool) -> None:
        procs, self._procs = self._procs, None
        if procs is None:
            return
        if expected:
            await procs.stop()
        else:
            await procs.kill()

    async def _wait_for_budget(self, why: str) -> None:
        decision = self._budget.decide((0,), 1, time.monotonic())
        if not decision.restart:
            policy = self._budget.policy
            raise RestartsExhausted(
                name=self.replica_id,
                restarts=policy.intensity,
                period_s=policy.period_s,
                last=why,
            )
        self.num_restarts += 1
        await asyncio.sleep(decision.after_s)

    def _record_start(self, procs: ProcMesh, incarnation: int) -> None:
        for rank, (process_id, pid) in enumerate(procs.pids().items()):
            self._journal.record(
                Event.PROCESS_STARTED,
                replica=self.replica_id,
                rank=rank,
                incarnation=incarnation,
                process_id=process_id,
                pid=pid,
            )

    def _record_exits(self, failure: MeshFailure) -> None:
        started = self.started
        for rank, process_id in zip(failure.ranks, failure.process_ids, strict=True):
            self._journal.record(
                Event.PROCESS_EXITED,
                replica=self.replica_id,
                rank=rank,
                incarnation=started.incarnation if started else 0,
                process_id=process_id,
                pid=started.pids[rank] if started else 0,
                exit_code=failure.exit_code,
                signal=failure.signal,
                kind=failure.kind,
                reason=failure.reason,
                expected=False,
            )


def worst(raised: DanausError | ExceptionGroup[Exception]) -> DanausError:
    """Return the one error that ends the job if there is such, else any."""
    errors = [error for error in _leaves(raised) if isinstance(error, DanausError)]
    if not errors:
        raise raised
    return max(errors, key=lambda error: error.scope is Scope.JOB)


def _leaves(error: BaseException) -> list[BaseException]:
    """Return what an endpoint raised at each point, the original where it could be pickled."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    original = error.__cause__ if isinstance(error, ActorError) else None
    return [original if isinstance(original, DanausError) else error]
