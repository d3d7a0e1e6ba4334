"""Keeps one replica alive: starts its workers, and starts them again when they fail.

Owns one replica's incarnations.  An incarnation is on disk before its processes start, so that
no two processes ever carry the same one.  A replica that lost a rank is stopped whole and started
again (H-3 will keep its siblings).  A replica that has left, as it was asked to, ends by itself
with exit code 0; whether it is started again is the crew's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from danaus.actor.failure import MeshFailure
from danaus.actor.future import Future
from danaus.actor.mesh import HostMesh
from danaus.actor.proc_mesh import ProcMesh
from danaus.actor.restart import RestartBudget
from danaus.app.chaos_fault import Fault
from danaus.app.events import Event
from danaus.app.inheritance import Inherited, note_name, train_on
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import WorkerResult
from danaus.app.run_status import Start
from danaus.app.settings import RunConfig
from danaus.app.spares import Spare
from danaus.app.worker import ReplicaWorker, WorkerJob
from danaus.app.worst import HOPELESS, all_of, in_words
from danaus.core.errors import (
    DanausError,
    DeadlinePassed,
    RestartsExhausted,
    ShareUnfit,
    SupervisionError,
)
from danaus.core.journal import Journal

T = TypeVar("T")
_HEAR_LIMIT_S = 1.0
_STRIKE_LIMIT_S = 5.0
_KILL_LIMIT_S = 2.0
_LEAVE_LIMIT_S = 600.0
"""What a rank may take to write its part of a last checkpoint once a sibling has left."""
_REMEMBERED = 8
"""So many lives of a replica may still be heard of: one that could not be killed ends late."""


class ReplicaKeeper:
    """Run one replica until it is done.

    Args:
        replica_id: Which.
        folder: The run's folder, held by this process.
        journal: Where starts and exits are written.
        config: How often it may be started again, and how long a start may take.
        host: Gives the host to start on, a new one where the last was lost, a spare that is ready,
            or what an earlier controller has left; may wait until the event is set.
        job: Makes the workers' orders for an incarnation.
    """

    def __init__(
        self,
        replica_id: str,
        folder: RunFolder,
        journal: Journal,
        *,
        config: RunConfig,
        host: Callable[[asyncio.Event], Awaitable[HostMesh | Spare | Inherited]],
        job: Callable[[str, int], WorkerJob],
    ) -> None:
        self.replica_id = replica_id
        self._folder, self._journal = folder, journal
        self._budget = RestartBudget(config.restart.policy())
        self._num_ranks = config.parallel.shard
        self._start_limit_s, self._grace_s = config.start_limit_s, config.grace_s
        self._host, self._job = host, job
        self._procs: ProcMesh | None = None
        self._workers: Any = None
        self._spawned: dict[str, tuple[ProcMesh, int]] = {}
        self._failed = asyncio.Event()
        self._failure: MeshFailure | None = None
        self._exited: set[str] = set()
        self._stopping, self._heard = asyncio.Event(), asyncio.Event()
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._gone = asyncio.Event()  # nothing of it runs
        self._wanted.set()
        self._gone.set()
        self._asked_to_leave = self._done = False
        self.started: Start | None = None
        self.num_restarts = 0

    def keep_budget(self, budget: RestartBudget) -> None:
        """Count restarts by a budget that may have been drawn upon before."""
        self._budget, self.num_restarts = budget, budget.total

    async def run(self) -> tuple[WorkerResult, ...]:
        """Train to the end, through failures; return each rank's result.

        Nothing if it was stopped, or computes wrongly: the others go on without it.

        Raises:
            RestartsExhausted: It fails too often.
            DanausError: One of those that no start mends.
        """
        while await self._is_wanted():
            try:
                results = await self._train_once()
                self._done = True
                return results
            except OSError as error:  # a full disk, say: what a start needs cannot be written
                why = f"{error.strerror or error}"
            except DanausError as error:
                if isinstance(error, HOPELESS):
                    raise
                why = in_words(error)
                if isinstance(error, ShareUnfit) and error.stays_out:
                    self._journal.record(
                        Event.REPLICA_QUARANTINED, replica=self.replica_id, reason=why
                    )
                    await self._end()
                    self._gone.set()
                    break
                if isinstance(error, SupervisionError):
                    await self._hear()
            if self._failure is None and not self._unwanted.is_set():
                # A death is written down where it is heard of.
                self._journal.record(Event.REPLICA_FAILED, replica=self.replica_id, reason=why)
            if self._has_left:
                await self._siblings_end()
            await self._end()
            self._gone.set()
            if not self._unwanted.is_set() and not self._asked_to_leave:
                await self._wait_for_budget(why)
        return ()

    async def _is_wanted(self) -> bool:
        """Wait until the replica is wanted; false: it is not any more, for good."""
        await self._wanted.wait()
        return not self._stopping.is_set()

    @property
    def _has_left(self) -> bool:
        return self._failure is not None and self._failure.exit_code == 0

    async def _siblings_end(self) -> None:
        """Let all ranks end that leave in good order: one may still be writing a checkpoint."""
        everyone = set(self._procs.process_ids) if self._procs is not None else set()
        with contextlib.suppress(TimeoutError):  # it is killed then, as any that does not end
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                while (
                    self._has_left and not self._exited >= everyone and not self._stopping.is_set()
                ):
                    self._heard.clear()
                    await self._heard.wait()

    async def _train_once(self) -> tuple[WorkerResult, ...]:
        """Start the workers once, and train.

        Raises:
            DanausError: Any of them failed.
        """
        self._failed.clear()
        self._failure, self._asked_to_leave = None, False
        self._exited.clear()
        host = await self._host(self._unwanted)
        if isinstance(host, Inherited):
            return await self._go_on_with(host)
        incarnation = self._folder.next_incarnation(self.replica_id)
        job = self._job(self.replica_id, incarnation)
        if self._unwanted.is_set():
            raise SupervisionError(self.replica_id, "it was stopped")
        self._gone.clear()
        if isinstance(host, Spare):
            procs, workers = host.procs, host.workers
            note_name(self._folder, procs, self.replica_id, incarnation=incarnation)
        else:
            procs = host.spawn_procs(
                per_host={"ranks": job.num_ranks}, name=self.replica_id, incarnation=incarnation
            )
            workers = procs.spawn("worker", ReplicaWorker, job)
        self._begin(procs, workers, incarnation)
        try:
            async with asyncio.timeout(self._start_limit_s):
                await self._unless_failed(procs.initialized)
                self.started = Start(incarnation, tuple(procs.pids().values()))
                self._record_start(procs, incarnation)
                if isinstance(host, Spare):
                    adopt = lambda rank: workers.slice(ranks=rank).adopt.call_one(job)  # noqa: E731
                    await self._on_ranks(adopt)
                else:
                    await self._on_ranks(lambda rank: workers.slice(ranks=rank).prepare.call_one())
            return await self._on_ranks(lambda rank: workers.slice(ranks=rank).train.call_one())
        except TimeoutError:
            raise DeadlinePassed(f"{self.replica_id} to start", self._start_limit_s) from None

    def _begin(self, procs: ProcMesh, workers: Any, incarnation: int) -> None:
        self._procs, self._workers = procs, workers
        self._spawned[procs.mesh_id] = procs, incarnation
        while len(self._spawned) > _REMEMBERED:
            del self._spawned[next(iter(self._spawned))]

    async def _go_on_with(self, found: Inherited) -> tuple[WorkerResult, ...]:
        """Train on in processes that an earlier controller has started (A-12).

        Raises:
            DanausError: Any of them has failed meanwhile, or fails.
        """
        self._gone.clear()
        procs = found.left.adopt()
        self._begin(procs, None, found.incarnation)
        self._workers = workers = found.adopt_workers()
        try:
            async with asyncio.timeout(self._start_limit_s):
                await self._unless_failed(procs.initialized)
                await self._unless_failed(workers.initialized)
        except TimeoutError:
            raise DeadlinePassed(f"{self.replica_id} to answer", self._start_limit_s) from None
        self.started = Start(found.incarnation, tuple(procs.pids().values()))
        job = self._job(self.replica_id, found.incarnation)
        become = job if found.is_another_by_birth else None
        ranks = [workers.slice(ranks=rank) for rank in range(self._num_ranks)]
        calls = [asyncio.ensure_future(train_on(each, become)) for each in ranks]
        return await self._unless_failed(asyncio.ensure_future(all_of(calls)))

    async def _on_ranks(self, call: Callable[[int], Future[T]]) -> tuple[T, ...]:
        """Return what a call comes to on each rank.

        A rank that raises ends it: its siblings would wait for it until they are taken for hung.

        Raises:
            DanausError: The worst of what the ranks raised.
        """
        calls = [call(rank) for rank in range(self._num_ranks)]
        return await self._unless_failed(asyncio.ensure_future(all_of(calls)))

    async def _unless_failed(self, future: Future[T] | asyncio.Future[T]) -> T:
        """Return what ``future`` comes to.

        Raises:
            SupervisionError: The replica failed, or was stopped, before.
        """
        call = future.as_asyncio() if isinstance(future, Future) else future
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            await asyncio.wait((call, failed), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise SupervisionError(self.replica_id, str(self._failure or "it was stopped"))
            return await call
        finally:
            failed.cancel()
            call.cancel()

    async def _hear(self) -> None:
        """Wait for the failure that ended a call: calls end before owners are told."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._failed.wait(), _HEAR_LIMIT_S)

    def failed(self, failure: MeshFailure) -> None:
        """Hear of a failure, this replica's or another's."""
        procs, incarnation = self._spawned.get(failure.mesh_id, (None, 0))
        if procs is None:
            return
        self._record_exits(failure, procs.pids(), incarnation)
        if procs is self._procs:
            self._exited.update(failure.process_ids)
            if self._failure is None or self._has_left:  # what came to harm has the word
                self._failure = failure
            self._failed.set()
            self._heard.set()

    async def strike(self, fault: Fault) -> None:
        """Have a worker strike itself with a resolved fault.

        Raises:
            DanausError: It is not there, does not train yet, or does not answer.
        """
        if self._procs is None or self._workers is None:
            why = "it has left" if self._has_left else "it is being started"
            raise SupervisionError(self.replica_id, why)
        worker = self._workers.slice(ranks=fault.rank or 0)
        try:
            await asyncio.wait_for(worker.strike.call_one(fault).as_asyncio(), _STRIKE_LIMIT_S)
        except TimeoutError:
            raise DeadlinePassed(f"{self.replica_id} to answer", _STRIKE_LIMIT_S) from None

    async def drain(self, reason: str, grace_s: float | None = None) -> str:
        """Have the replica leave after the step in hand and stay away; return how it went, once
        nothing of it runs.

        Args:
            reason: Who wants it, in words.
            grace_s: Kill it after so many seconds; None: give it the time that its step takes.
        """
        if self._gone.is_set():
            self._unwant()
            return f"{self.replica_id} did not run"
        self._asked_to_leave = True
        self._unwant()
        if self._workers is not None:
            asking = self._workers.slice(ranks=0).leave.call_one(reason).as_asyncio()
            with contextlib.suppress(DanausError, TimeoutError):  # it ends, or hangs (P-3)
                await asyncio.wait_for(asking, _STRIKE_LIMIT_S)
        try:
            await asyncio.wait_for(self._gone.wait(), grace_s)
        except TimeoutError:
            await self._end()
            await self._gone.wait()
        died = "has ended with the run" if self._done else f"died ({self._failure or 'killed'})"
        return f"{self.replica_id} {'has left' if self._has_left else died}"

    def _unwant(self) -> None:
        self._wanted.clear()
        self._unwanted.set()

    def resume(self) -> None:
        """Have the replica train again."""
        if not self._stopping.is_set():
            self._unwanted.clear()
            self._wanted.set()

    async def stop(self) -> None:
        """End the workers, and do not start them again.

        Those that still train are killed: they would not hear of a wish to stop before they are
        done, and whatever they write may break off anywhere.
        """
        for each in (self._stopping, self._unwanted, self._wanted, self._failed, self._heard):
            each.set()
        await self._end()
        self._gone.set()

    async def _end(self) -> None:
        procs, self._procs = self._procs, None
        if procs is None:
            return
        if self._done:
            await procs.stop(self._grace_s)
            return
        try:
            await asyncio.wait_for(procs.kill().as_asyncio(), _KILL_LIMIT_S)
        except TimeoutError:
            self._record_stuck(procs)

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
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), decision.after_s)

    def _record_stuck(self, procs: ProcMesh) -> None:
        self._journal.record(
            Event.PROCESS_STUCK,
            replica=self.replica_id,
            pids=[pid for pid in procs.pids().values() if os.path.exists(f"/proc/{pid}")],
            reason=f"killed {_KILL_LIMIT_S:g} s ago and still there: it waits inside the kernel, "
            "for a device or a file system",
        )

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

    def _record_exits(self, failure: MeshFailure, pids: dict[str, int], incarnation: int) -> None:
        for rank, process_id in zip(failure.ranks, failure.process_ids, strict=True):
            self._journal.record(
                Event.PROCESS_EXITED,
                replica=self.replica_id,
                rank=rank,
                incarnation=incarnation,
                process_id=process_id,
                pid=pids.get(process_id, 0),
                exit_code=failure.exit_code,
                signal=failure.signal,
                kind=failure.kind,
                reason=failure.reason,
                expected=failure.exit_code == 0,
            )
