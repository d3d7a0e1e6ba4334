"""Keeps one replica alive: starts its workers, and starts them again when they fail.

Owns one replica's incarnations.  An incarnation is on disk before its processes start, so that
no two processes ever carry the same one.  Of a replica that lost one rank, that rank is started
anew and its siblings go on in their processes, where that is wanted and comes off
(``rank_repair``); else it is stopped whole and started again.  A replica that has left, as it was
asked to, ends by itself with exit code 0; whether it is started again is the crew's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from danaus.actor.failure import MeshFailure
from danaus.actor.future import Future
from danaus.actor.mesh import HostMesh
from danaus.actor.restart import RestartBudget
from danaus.app.chaos_fault import Fault
from danaus.app.inheritance import Inherited, train_on, unanswered
from danaus.app.rank_repair import RankRepair, Trainings, can_repair, let_go
from danaus.app.replica_ranks import RankProcess, ReplicaRanks
from danaus.app.replica_record import ReplicaRecord
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import WorkerResult
from danaus.app.run_status import Start
from danaus.app.settings import RunConfig
from danaus.app.spares import Spare
from danaus.app.worker import ReplicaWorker, WorkerJob
from danaus.app.worst import HOPELESS, all_of, gathered, in_words
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
        self._folder = folder
        self._record = ReplicaRecord(replica_id, folder, journal)
        self._budget = RestartBudget(config.restart.policy())
        self._start_limit_s, self._grace_s = config.start_limit_s, config.grace_s
        self._host, self._job = host, job
        self._ranks = ReplicaRanks()
        self._lost: list[RankProcess] = []  # since it was whole
        self._rejoins = False
        self._failed = asyncio.Event()
        self._failure: MeshFailure | None = None
        self._exited: set[str] = set()
        self._stopping, self._heard = asyncio.Event(), asyncio.Event()
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._gone = asyncio.Event()  # nothing of it runs
        self._wanted.set()
        self._gone.set()
        self._asked_to_leave = self._done = self._repairing = False
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
                    self._record.quarantined(why)
                    await self._end()
                    self._gone.set()
                    break
                if isinstance(error, SupervisionError):
                    await self._hear()
            if self._failure is None and not self._unwanted.is_set():
                # A death is written down where it is heard of.
                self._record.failed(why)
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
        everyone = self._ranks.process_ids
        with contextlib.suppress(TimeoutError):  # it is killed then, as any that does not end
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                while self._has_left and not (self._exited >= everyone or self._stopping.is_set()):
                    self._heard.clear()
                    await self._heard.wait()

    async def _train_once(self) -> tuple[WorkerResult, ...]:
        """Start the workers once, and train.

        Raises:
            DanausError: Any of them failed.
        """
        self._forget_failure()
        self._asked_to_leave = False
        self._exited.clear()
        host = await self._host(self._unwanted)
        if isinstance(host, Inherited):
            return await self._go_on_with(host)
        incarnation = self._folder.next_incarnation(self.replica_id)
        job = self._job(self.replica_id, incarnation)
        self._rejoins = job.rejoins
        if self._unwanted.is_set():
            raise SupervisionError(self.replica_id, "it was stopped")
        self._gone.clear()
        if isinstance(host, Spare):
            procs, workers, home = host.procs, host.workers, host.home
        else:
            procs = host.spawn_procs(
                per_host={"ranks": job.num_ranks}, name=self.replica_id, incarnation=incarnation
            )
            workers, home = procs.spawn("worker", ReplicaWorker, job), host
        self._ranks.begin(procs, workers, incarnation, home=home)
        if isinstance(host, Spare):
            self._record.adopted(self._ranks)
        try:
            async with asyncio.timeout(self._start_limit_s):
                await self._unless_failed(procs.initialized)
                self.started = Start(incarnation, self._ranks.pids)
                for each in self._ranks:
                    self._record.started(each)
                if isinstance(host, Spare):
                    calls = [each.worker.adopt.call_one(job) for each in self._ranks]
                else:
                    calls = [each.worker.prepare.call_one() for each in self._ranks]
                # A rank that raises ends it: its siblings would wait until they are taken for hung.
                await self._unless_failed(asyncio.ensure_future(all_of(calls)))
        except TimeoutError:
            raise DeadlinePassed(f"{self.replica_id} to start", self._start_limit_s) from None
        return await self._train(self._ranks.train())

    async def _go_on_with(self, found: Inherited) -> tuple[WorkerResult, ...]:
        """Train on in processes that an earlier controller has started (A-12).

        Raises:
            DanausError: Any of them has failed meanwhile, or fails.
        """
        self._gone.clear()
        job = self._job(self.replica_id, found.incarnation)
        self._rejoins = job.rejoins
        adopted = found.adopt()
        self._ranks.go_on(adopted, found.incarnation, home=found.home)
        errors = await unanswered([each.worker for each in self._ranks], self._start_limit_s)
        if errors:
            await self._hear()  # of an end that is heard of, one rank may be mended
        if errors and self._failure is None:
            raise errors[0]
        if len(adopted) < job.num_ranks:
            raise SupervisionError(self.replica_id, "not all of its ranks are left")
        self.started = Start(found.incarnation, self._ranks.pids)
        become = job if found.is_another_by_birth else None
        calls: Trainings = {}
        for each in self._ranks:
            calls[each.rank] = asyncio.ensure_future(train_on(each.worker, become))
        return await self._train(calls)

    async def _train(self, calls: Trainings) -> tuple[WorkerResult, ...]:
        """Train, and repair the replica where it loses one rank.

        Raises:
            DanausError: The worst of what ranks raised, or what ended them.
        """
        try:
            while True:
                everyone = [calls[rank] for rank in sorted(calls)]
                try:
                    return await self._unless_failed(asyncio.ensure_future(gathered(everyone)))
                except SupervisionError:
                    await self._hear()
                    wanted = self._rejoins and not self._asked_to_leave
                    if not wanted or not can_repair(self._failure, self._lost, calls):
                        raise
                new = await self._repair(self._lost[0])
                let_go(calls[new.rank])
                calls[new.rank] = new.worker.train.call_one().as_asyncio()
        finally:
            for call in calls.values():
                let_go(call)

    async def _repair(self, lost: RankProcess) -> RankProcess:
        """Start one rank anew; return it.

        Raises:
            DanausError: It did not come to that.
        """
        failure = self._failure
        decision = self._budget.decide((lost.rank,), 1, time.monotonic())
        if not decision.restart:
            raise SupervisionError(self.replica_id, str(failure))
        self._forget_failure()
        self.num_restarts += 1
        incarnation = self._folder.next_incarnation(self.replica_id)
        job, limit_s = self._job(self.replica_id, incarnation), self._start_limit_s
        repair = RankRepair(
            self._ranks, self._record, job, limit_s=limit_s, unless_failed=self._unless_failed
        )
        try:
            self._repairing = True
            new = await repair.run(lost, decision.after_s)
        except DanausError:
            self._failure = failure  # whatever its siblings ended of since
            raise
        finally:
            self._repairing = False
        self.started = Start(incarnation, self._ranks.pids)
        return new

    def _forget_failure(self) -> None:
        self._failure = None
        self._lost.clear()
        if not self._stopping.is_set():
            self._failed.clear()

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
        hit = self._ranks.hit_by(failure)
        for each in hit:
            self._record.exited(each, failure)
        now = [each for each in hit if self._ranks.is_now(each)]
        if now:
            self._lost += now
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
        if not self._ranks:
            why = "it has left" if self._has_left else "it is being started"
            raise SupervisionError(self.replica_id, why)
        worker = self._ranks[fault.rank or 0].worker
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
        if self._repairing:
            self._failed.set()  # nobody counts on it
        elif self._ranks:
            asking = self._ranks[0].worker.leave.call_one(reason).as_asyncio()
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
        pids, meshes = self._ranks.pids, self._ranks.take()
        if self._done:
            await asyncio.gather(
                *(procs.stop(grace_s=self._grace_s).as_asyncio() for procs in meshes)
            )
            return
        ending = [procs.kill().as_asyncio() for procs in meshes]
        try:
            await asyncio.wait_for(asyncio.gather(*ending), _KILL_LIMIT_S)
        except TimeoutError:
            self._record.stuck([pid for pid in pids if pid], _KILL_LIMIT_S)

    async def _wait_for_budget(self, why: str) -> None:
        decision = self._budget.decide((0,), 1, time.monotonic())
        if not decision.restart:
            policy = self._budget.policy
            raise RestartsExhausted(self.replica_id, policy.intensity, policy.period_s, why)
        self.num_restarts += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), decision.after_s)
