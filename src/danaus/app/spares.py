"""Warm spares: processes that are ready to become any replica (H-4).

Owns ``SparePool``.  A spare has been forked, has imported all that is heavy and has built the
model; it is no member of anything.  A replica that is to start takes one: it is told who it is,
learns the state and takes part.  Another spare is started in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from danaus.actor.failure import MeshFailure
from danaus.actor.mesh import HostMesh, ProcMesh
from danaus.actor.restart import RestartBudget
from danaus.app.events import Event
from danaus.app.inheritance import Inherited
from danaus.app.run_folder import RunFolder
from danaus.app.run_hosts import RunHosts
from danaus.app.settings import RunConfig
from danaus.app.worker import ReplicaWorker, WorkerJob
from danaus.core.errors import DanausError
from danaus.core.journal import Journal

_KILL_LIMIT_S = 2.0


@dataclass(slots=True)
class Spare:
    """Processes that wait to be told who they are.

    Args:
        name: As in ``spare-0``.
        host: Where they live.
        home: The same, to start more there.
        procs: They.
        workers: The actor in each, prepared.
    """

    name: str
    host: int
    home: HostMesh
    procs: ProcMesh
    workers: Any


class SparePool:
    """Keep so many spares ready.

    Args:
        folder: The run's, held by this process.
        journal: Where spares are written down.
        config: How many, and how long a start may take.
        hosts: Where they live: on the hosts that have least to do.
        job: Makes the order of a spare, by its host, its name and its incarnation.
    """

    def __init__(
        self,
        folder: RunFolder,
        journal: Journal,
        config: RunConfig,
        *,
        hosts: RunHosts,
        job: Callable[[int, str, int], WorkerJob],
    ) -> None:
        self._folder, self._journal, self._config = folder, journal, config
        self._hosts, self._job = hosts, job
        self._stopping = asyncio.Event()
        self._ready: dict[str, Spare] = {}
        self._used = {f"spare-{n}": asyncio.Event() for n in range(config.spares)}
        self._alive: dict[str, str] = {}
        self._found: dict[str, Inherited] = {}

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start the spares, or take those that an earlier controller has left, and keep them."""
        for name in self._used:
            found = self._hosts.inheritance.claim(name)
            if found is not None:
                self._found[name] = found
            tasks.create_task(self._keep(name))

    def take(self) -> Spare | None:
        """Return a spare that is ready, and have another one started; None: there is none."""
        if not self._ready or self._stopping.is_set():
            return None
        spare = self._ready.pop(min(self._ready))
        del self._alive[spare.procs.mesh_id]
        self._used[spare.name].set()
        return spare

    def failed(self, failure: MeshFailure) -> None:
        """Hear of a failure: it may be a spare's."""
        name = self._alive.pop(failure.mesh_id, "")
        if name:
            self._journal.record(Event.SPARE_LOST, spare=name, reason=failure.reason)
            self._ready.pop(name, None)
            self._used[name].set()

    async def stop(self) -> None:
        """End those that are ready."""
        self._stopping.set()
        for used in self._used.values():
            used.set()
        ready, self._ready = list(self._ready.values()), {}
        await asyncio.gather(*(_end(spare.procs) for spare in ready))

    async def _keep(self, name: str) -> None:
        """See one spare after the other to its use or its end."""
        budget = RestartBudget(self._config.restart.policy())
        while not self._stopping.is_set():
            used = self._used[name]
            used.clear()
            try:
                self._ready[name] = await self._start(name)
                self._journal.record(Event.SPARE_READY, spare=name)
            except (DanausError, OSError, TimeoutError) as error:
                reason = str(error).partition("\n")[0]
                self._journal.record(Event.SPARE_LOST, spare=name, reason=reason)
                decision = budget.decide((0,), 1, time.monotonic())
                # A run needs no spare: one that never comes up is tried less and less often.
                pause_s = decision.after_s if decision.restart else budget.policy.period_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)
                continue
            if self._stopping.is_set():
                await self.stop()
            await used.wait()

    async def _start(self, name: str) -> Spare:
        found = self._found.pop(name, None)
        if found is not None:
            return await self._go_on_with(found)
        rank, host = await self._hosts.spare_host(name, self._stopping)
        incarnation = self._folder.next_incarnation(name)
        job = self._job(rank, name, incarnation)
        procs = host.spawn_procs(
            per_host={"ranks": job.num_ranks}, name=name, incarnation=incarnation
        )
        self._alive[procs.mesh_id] = name
        workers: Any = procs.spawn("worker", ReplicaWorker, job)
        return await self._prepared(Spare(name, rank, host, procs, workers))

    async def _go_on_with(self, found: Inherited) -> Spare:
        """Take over a spare that an earlier controller has started (A-12)."""
        home = self._hosts.keep_spare(found.name, found.host)
        procs = found.left.adopt()
        self._alive[procs.mesh_id] = found.name
        workers: Any = found.left.adopt_actors("worker", ReplicaWorker)
        return await self._prepared(Spare(found.name, found.host, home, procs, workers))

    async def _prepared(self, spare: Spare) -> Spare:
        procs, workers = spare.procs, spare.workers
        try:
            async with asyncio.timeout(self._config.start_limit_s):
                await procs.initialized
                ranks = (workers.slice(ranks=rank) for rank in range(len(procs)))
                await asyncio.gather(*(each.prepare.call_one().as_asyncio() for each in ranks))
        except BaseException:
            self._alive.pop(procs.mesh_id, None)
            await _end(procs)
            raise
        return spare


async def _end(procs: ProcMesh) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(procs.kill().as_asyncio(), _KILL_LIMIT_S)
