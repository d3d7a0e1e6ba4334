"""The controller of a run: one actor that owns the quorum service, the hosts and the replicas.

It starts things and starts them again; it is on no step's path: while it is stopped or gone,
members go on among themselves.

Invariants:
    P-4: an attached run ends with its controller; the run folder holds what a later one needs.
    P-5: everything is stopped side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danaus.actor.endpoints import Actor, concurrent_endpoint
from danaus.actor.failure import MeshFailure
from danaus.app.chaos import FaultPlan
from danaus.app.chaos_desk import ChaosDesk
from danaus.app.crew import Crew
from danaus.app.door import Asked, Done, HoldService, Stop, Strike, serve_door
from danaus.app.events import SERVICE, Event
from danaus.app.lab_folder import LABS
from danaus.app.rank_repair import repair_choice
from danaus.app.replica_keeper import ReplicaKeeper
from danaus.app.run_folder import RunFolder
from danaus.app.run_hosts import RunHosts
from danaus.app.run_record import happening, job_restarts, replica_of
from danaus.app.run_result import RunResult, WorkerResult, conclude
from danaus.app.run_status import RunStatus
from danaus.app.service_keeper import ServiceKeeper
from danaus.app.settings import RunConfig, note_running
from danaus.app.spares import SparePool
from danaus.app.watchdog_keeper import WatchdogKeeper
from danaus.app.worker import TRAINING, WorkerJob
from danaus.app.worst import worst
from danaus.core import journal
from danaus.core.config import describe
from danaus.core.errors import DanausError
from danaus.core.journal import Journal
from danaus.ft.observer import Observer
from danaus.wire.address import Address

PRELOAD = (TRAINING,)
"""What a nursery imports before it forks: the worker, and torch with it."""
PRELOAD_SHARDED = ("danaus.train.sharding", "danaus.collectives.shard_group")
"""What it imports beside that where a replica has several ranks."""

_LAST_ONES_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What a controller is to run.

    Args:
        run_dir: The run's folder; made by ``RunFolder.create``, not held by anybody.
        config: Every setting.
        text: Where the data comes from, in words.
        resume: The folder holds an earlier part of this run.
        heal: Whether a replica whose bits differ heals from the others (Q-9); else the run ends.
        niceness: Added to the workers' scheduling priority.
        observers: Extra observers by replica, made in its workers; for faults on purpose.
        chaos: Faults on purpose; None: none.
        labs: Folder of the labs of this machine, whose networks faults may harm.
        adopt: Go on with what an earlier controller has left running; else that is ended.
        take_over: End a controller of this folder that is alive.
    """

    run_dir: Path
    config: RunConfig
    text: str = ""
    resume: bool = False
    heal: bool = True
    niceness: int = 0
    observers: Mapping[str, tuple[Callable[[Any], Observer], ...]] = field(default_factory=dict)
    chaos: FaultPlan | None = None
    labs: Path = LABS
    adopt: bool = True
    take_over: bool = False


class RunController(Actor):
    """Run a training run to its end.

    Args:
        order: What to run.
    """

    def __init__(self, order: RunOrder) -> None:
        self._order, self._config = order, order.config
        self._stop_reason = ""
        self._stopped = asyncio.Event()
        self._cannot_run: DanausError | OSError | None = None
        try:
            self._make(order)
        except (DanausError, OSError) as error:
            # Not raised here, where nobody waits for it: ``run`` says it to whoever does.
            self._cannot_run = error

    def _make(self, order: RunOrder) -> None:
        self._folder = RunFolder.open(order.run_dir)
        self._folder.hold(take_over=order.take_over)
        self._journal = Journal(self._folder.journal_path)
        self._repair = repair_choice(order.config)
        self._folder.sockets(outlive=order.config.detached)
        self._service = ServiceKeeper(
            self._folder,
            order.config,
            self._journal,
            resume=order.resume,
            heal=order.heal,
        )
        self._hosts = RunHosts(
            self._folder,
            order.config,
            self._journal,
            preload=PRELOAD + (PRELOAD_SHARDED if order.config.parallel.shard > 1 else ()),
            adopt=order.resume and order.adopt,
        )
        self._crew = Crew(
            self._folder,
            self._journal,
            order.config,
            hosts=self._hosts,
            make_keeper=self._make_keeper,
            spares=SparePool(
                self._folder,
                self._journal,
                order.config,
                hosts=self._hosts,
                job=lambda rank, *named: self._worker_job(self._hosts.agent_on(rank), *named),
            ),
        )
        self._chaos = ChaosDesk(
            self._folder,
            order.chaos,
            order.config,
            strikes=lambda: {keeper.replica_id: keeper.strike for keeper in self._crew.keepers},
            hold_service=self._service.hold,
            labs=order.labs,
        )
        self._watchdog = WatchdogKeeper(self._folder, order.config, self._journal)
        # Until it is, no failure of this controller is the run's: another may try.
        self._may_be_adopted = order.resume and order.adopt and order.config.detached

    # -- the face ---------------------------------------------------------------------------

    @concurrent_endpoint
    async def run(self) -> RunResult | None:
        """Run to the end; return None if the run was stopped before it.

        Raises:
            DanausError: What ended it before, for good.
            OSError: The machine did not let it go on.
        """
        if self._cannot_run is not None:
            raise self._cannot_run
        try:
            return self._conclude(await self._train())
        except (DanausError, OSError, ExceptionGroup) as raised:
            if not self._folder.is_there():
                raise self._folder.removed() from raised
            error = worst(raised)
            if not self._may_be_adopted:
                self._journal.record(Event.RUN_FAILED, error=type(error).__name__, text=str(error))
            raise error from None
        finally:
            self._watchdog.dismiss()
            self._service.close()
            self._folder.release(keep_sockets=self._config.detached)
            self._journal.close()

    async def _train(self) -> dict[str, tuple[WorkerResult, ...]]:
        """Run hosts, service and replicas to the end; nothing of them is left then."""
        try:
            await self._hosts.start()
            await self._begin()
            self._may_be_adopted = False
            async with self._open_door(), self._chaos.striking(), asyncio.TaskGroup() as tasks:
                service = tasks.create_task(self._service.run())
                tasks.create_task(self._watchdog.run())
                self._crew.begin(tasks)
                stopped = tasks.create_task(self._stopped.wait())
                await self._crew.first_at_the_end(stopped, self._config.step.num_steps)
                self._watchdog.dismiss()
                await self._wind_down()
                stopped.cancel()
                await self._service.stop()
                await service
            return self._crew.results()
        finally:
            await self._hosts.end(keep_left=self._may_be_adopted)

    async def _begin(self) -> None:
        """See whether anything of the run lives: then it goes on; else it begins, or resumes."""
        if self._config.detached:
            with contextlib.suppress(OSError):  # without room its watchdog will say what it lacks
                note_running(self._folder, self._config)
        inheritance = self._hosts.inheritance
        policy = self._config.restart.policy()
        self._service.keep_budget(inheritance.budget(SERVICE, policy))
        if (living := inheritance.living) and self._service.adopt():
            self._record_adoption(living)
        else:
            if living:  # without the service that it knows it can do nothing
                await inheritance.end_unclaimed()
            inheritance.drop()
            self._service.reserve()
            self._record_begin()

    @concurrent_endpoint
    async def status(self) -> RunStatus:
        """Return what runs where."""
        if self._cannot_run is not None:
            raise self._cannot_run
        keepers = self._crew.keepers
        started = {k.replica_id: k.started for k in keepers if k.started is not None}
        return RunStatus(started, self._service.pid)

    @concurrent_endpoint
    async def end(self, reason: str) -> None:
        """End everything; ``run`` returns None."""
        if self._cannot_run is None:
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        self._watchdog.dismiss()  # first: it would start the run again
        self._stop_reason = reason
        self._stopped.set()

    def __supervise__(self, failure: MeshFailure) -> bool:
        """Hear of dead workers and lost hosts; the keepers start them again.

        Whatever else fails here was ended on purpose, or ends a call that a keeper waits for.
        """
        self._hosts.failed(failure)
        self._crew.failed(failure)
        return True

    # -- parts ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _open_door(self) -> AsyncIterator[None]:
        """Answer at the door for as long as the context is open."""
        address = Address.parse(f"unix:{self._folder.sockets() / 'door'}")
        listener = await serve_door(address, self._folder.secret(), self._asked)
        try:
            self._folder.save_addresses(door=str(listener.address))
            yield
        finally:
            await listener.close()

    async def _asked(self, asked: Asked) -> Done:
        if isinstance(asked, Strike | HoldService):
            await self._chaos.asked(asked)
            return Done()
        if isinstance(asked, Stop):
            self._stop(asked.reason)
            return Done("the run ends")
        return await self._crew.asked(asked)

    def _make_keeper(self, place: int) -> ReplicaKeeper:
        name = f"replica-{place}"
        keeper = ReplicaKeeper(
            name,
            self._folder,
            self._journal,
            config=self._config,
            host=lambda stopping: self._crew.berth(place, stopping),
            job=lambda *named: self._worker_job(self._hosts.agent_address(place), *named),
        )
        policy = self._config.restart.policy()
        keeper.keep_budget(self._hosts.inheritance.budget(name, policy))
        return keeper

    def _worker_job(self, agent: Address, replica_id: str, incarnation: int) -> WorkerJob:
        order = self._order
        return WorkerJob(
            run_dir=str(self._folder.path),
            quorum_address=self._service.address_for(agent),
            replica_id=replica_id,
            num_replicas=order.config.replicas,
            num_ranks=order.config.parallel.shard,
            incarnation=incarnation,
            train=order.config,
            niceness=order.niceness,
            pace=order.config.straggler.limits(),
            audit=order.config.audit(),
            rejoins=self._repair.by_rank,
            observers=(*order.observers.get(replica_id, ()), *self._chaos.planned(replica_id)),
        )

    # -- the end ----------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """Let members finish together; stop those who only start or learn, or cannot finish."""
        if not self._stopped.is_set():
            finishing = self._crew.tasks_of(self._last_members())
            everyone = self._crew.tasks_of(self._crew.names)
            await asyncio.wait(finishing or everyone, timeout=_LAST_ONES_LIMIT_S)
        await self._crew.stop()

    def _last_members(self) -> set[str]:
        """Return who had committed the last step when the end was announced, as far as is known."""
        lines = reversed(journal.read(self._folder.journal_path))
        told = (e for line in lines if (e := happening(line)) and e.facts.get("finished"))
        end = next((e for e in told if e.name == Event.QUORUM_ANNOUNCED), None)
        return {replica_of(member) for member in end.names("members")} if end else set()

    def _conclude(self, results: Mapping[str, tuple[WorkerResult, ...]]) -> RunResult | None:
        num_restarts = sum(keeper.num_restarts for keeper in self._crew.keepers)
        result = conclude(results, num_restarts)
        if result is None:
            self._journal.record(Event.RUN_STOPPED, reason=self._stop_reason)
            return None
        events = journal.read(self._folder.journal_path)
        self._journal.record(
            Event.RUN_FINISHED,
            step=result.step,
            sha256=result.sha256,
            num_restarts=result.num_restarts,
            job_restarts=job_restarts(filter(None, map(happening, events))),
        )
        return result

    def _record_adoption(self, living: Mapping[str, int]) -> None:
        names = self._crew.names
        self._journal.record(
            Event.RUN_ADOPTED,
            replicas=names,
            living={name: living[name] for name in names if name in living},
            gone=[name for name in names if name not in living],
            pid=os.getpid(),
            reason="the controller before has ended; what it started goes on",
        )

    def _record_begin(self) -> None:
        config = self._config
        self._journal.record(
            Event.RUN_STARTED,
            name=self._folder.name,
            resume=self._order.resume,
            replicas=self._crew.names,
            ranks=config.parallel.shard,
            steps=config.step.num_steps,
            pid=os.getpid(),
            text=self._order.text,
            repair=["rank" if self._repair.by_rank else "replica", self._repair.reason],
            settings={each.name: [each.value, each.reason] for each in describe(config)},
        )
