"""Repair of one rank of a replica: it alone is started anew, its siblings go on (H-3).

Owns the choice between that and a start of the whole replica, and ``RankRepair``, which carries it
out: the siblings are told to give their names up, a process is started in the place of the lost
one, and all meet under the replica's next incarnation.  Whatever goes wrong on the way is an error:
the replica is started whole then, as ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from danaus.actor.failure import MeshFailure
from danaus.actor.future import Future
from danaus.app.inheritance import name_apart
from danaus.app.replica_ranks import RankProcess, ReplicaRanks
from danaus.app.replica_record import ReplicaRecord
from danaus.app.run_result import WorkerResult
from danaus.app.settings import RunConfig
from danaus.app.worker import ReplicaWorker, WorkerJob
from danaus.core.errors import DanausError, DeadlinePassed, SupervisionError
from danaus.platform.choice import check

Trainings = dict[int, "asyncio.Future[WorkerResult]"]
Unless = Callable[[Future[Any] | asyncio.Future[Any]], Awaitable[Any]]

_OF_ONE_PROCESS = ("signal", "exit", "hang")
"""Kinds of failure that are one process's: its siblings are not touched by them."""


@dataclass(frozen=True, slots=True)
class RepairChoice:
    """Whether one rank is repaired, and why, in words."""

    by_rank: bool
    reason: str


def repair_choice(config: RunConfig) -> RepairChoice:
    """Return what a run does about a replica that has lost one rank.

    Raises:
        DanausError: The platform that is asked for cannot be had.
    """
    if config.parallel.shard == 1:
        return RepairChoice(False, "a replica has one rank")
    if config.repair != "auto":
        return RepairChoice(config.repair == "rank", f"repair = {config.repair}")
    kind = check(config.platform)
    if kind == "cpu":
        return RepairChoice(True, "auto: on CPUs a collective ends with the death of its peer")
    return RepairChoice(False, f"auto: repair of one rank is not certified on {kind}")


def can_repair(failure: MeshFailure | None, lost: Sequence[RankProcess], calls: Trainings) -> bool:
    """Tell whether one rank is lost, and all others train.

    Args:
        failure: What was heard first; None: nothing.
        lost: Those that are gone.
        calls: What each rank is at.
    """
    if failure is None or failure.kind not in _OF_ONE_PROCESS or failure.exit_code == 0:
        return False
    gone = {each.rank for each in lost}
    return len(gone) == 1 and not any(calls[rank].done() for rank in calls.keys() - gone)


def let_go(call: asyncio.Future[WorkerResult]) -> None:
    """Wait no more for what a rank is at; what it ended in was told, or comes of what was."""
    if not call.cancel() and not call.cancelled():
        call.exception()  # asyncio reports what nobody has looked at


class RankRepair:
    """One repair.

    Args:
        ranks: The replica's processes, one of which is gone.
        record: Where it is written down.
        job: The order of the replica's next incarnation.
        limit_s: How long it may take, in seconds.
        unless_failed: Waits for a future, and raises if the replica fails before.
    """

    def __init__(
        self,
        ranks: ReplicaRanks,
        record: ReplicaRecord,
        job: WorkerJob,
        *,
        limit_s: float,
        unless_failed: Unless,
    ) -> None:
        self._ranks, self._record, self._job = ranks, record, job
        self._limit_s, self._unless_failed = limit_s, unless_failed

    async def run(self, lost: RankProcess, after_s: float) -> RankProcess:
        """Start a process in the place of a lost one; return it once all have met.

        Args:
            lost: Which.
            after_s: How long to wait before that, in seconds.

        Raises:
            DanausError: It did not come to that.
        """
        began = time.monotonic()
        job = replace(self._job, lost_rank=lost.rank)
        telling = asyncio.ensure_future(self._tell_siblings(job, lost))
        try:
            async with asyncio.timeout(self._limit_s):
                await self._unless_failed(asyncio.ensure_future(asyncio.sleep(after_s)))
                new = await self._start(job, lost, telling)
        except TimeoutError:
            late = DeadlinePassed(f"{job.replica_id} to be repaired", self._limit_s)
            self._record.not_repaired(lost.rank, str(late))
            raise late from None
        except (DanausError, OSError) as error:
            self._record.not_repaired(lost.rank, str(error).partition("\n")[0])
            raise
        finally:
            telling.cancel()
        self._record.repaired(new, self._ranks, time.monotonic() - began)
        return new

    async def _tell_siblings(self, job: WorkerJob, lost: RankProcess) -> None:
        calls = [
            each.worker.rejoin.call_one(replace(job, rank=each.rank)).as_asyncio()
            for each in self._ranks
            if each.rank != lost.rank
        ]
        await asyncio.gather(*calls)

    async def _start(
        self, job: WorkerJob, lost: RankProcess, telling: asyncio.Future[None]
    ) -> RankProcess:
        home, rank = self._ranks.home, lost.rank
        if home is None:
            raise SupervisionError(job.replica_id, "it is nowhere")
        procs = home.spawn_procs(
            per_host={"ranks": 1},
            name=name_apart(rank, job.replica_id),
            incarnation=job.incarnation,
        )
        workers: Any = procs.spawn("worker", ReplicaWorker, replace(job, rank=rank))
        self._ranks.replace(rank, procs, workers, incarnation=job.incarnation)
        new = self._ranks[rank]
        await self._unless_failed(procs.initialized)
        self._record.adopted(self._ranks)
        self._record.started(new)
        await self._unless_failed(telling)  # else it would wait for them in vain
        await self._unless_failed(new.worker.prepare.call_one())
        return new
