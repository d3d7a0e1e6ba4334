"""A controller's part in faults on purpose: what its door is asked for, and its own campaign.

Owns ``ChaosDesk``.  The campaign looks and strikes on a thread of its own, so that the controller
does what it always does meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from danaus.app.campaign import Campaign
from danaus.app.chaos import FaultPlan
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_inside import has_struck, make_inside
from danaus.app.chaos_lab import lab_network
from danaus.app.chaos_spec import read
from danaus.app.door import HoldService, Strike
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig, fleet_of
from danaus.core.clock import time_of_day
from danaus.core.errors import ConfigError
from danaus.ft.observer import Observer

StrikeOne = Callable[[Fault], Awaitable[None]]


class ChaosDesk:
    """Answer what a fault needs, and strike by a plan, while a run goes on.

    Args:
        folder: The run's.
        plan: What is done to the run by itself; None: nothing.
        config: What the run has.
        strikes: By replica, what has a worker of it strike itself.
        hold_service: Keeps the quorum service away for so many seconds at its next death.
        labs: Folder of the labs whose networks may be harmed.

    Raises:
        ConfigError: A target of the plan is not there.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: FaultPlan | None,
        config: RunConfig,
        *,
        strikes: Callable[[], Mapping[str, StrikeOne]],
        hold_service: Callable[[float], None],
        labs: Path,
    ) -> None:
        self._folder = folder
        self._strikes, self._hold_service = strikes, hold_service
        self._campaign: Campaign | None = None
        if plan is not None:
            self._campaign = Campaign(
                folder,
                plan,
                fleet_of(config, folder),
                network=lab_network(config.hosts, labs),
                since=time_of_day(),
            )
        self._told = list(self._campaign.take_planned()) if self._campaign else []

    def planned(self, replica_id: str) -> tuple[Callable[[Any], Observer], ...]:
        """Return what is still to strike a replica's workers: each life of it has to be told."""
        mine = [
            fault
            for fault in self._told
            if f"replica-{fault.replica}" == replica_id and not has_struck(self._folder.path, fault)
        ]
        return tuple(map(make_inside, mine))

    @contextlib.asynccontextmanager
    async def striking(self) -> AsyncIterator[None]:
        """Strike by the plan for as long as the context is open."""
        if self._campaign is None:
            yield
            return
        stopped = threading.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(self._campaign.run, stopped))
            try:
                yield
            finally:
                stopped.set()
        self._campaign.close()

    async def asked(self, asked: Strike | HoldService) -> None:
        """Do what a fault needs.

        Raises:
            DanausError: It cannot be done.
        """
        if isinstance(asked, HoldService):
            self._hold_service(asked.seconds)
            return
        fault = dataclasses.replace(read(asked.spec), id=asked.id)
        strike = self._strikes().get(f"replica-{fault.replica}")
        if strike is None:
            raise ConfigError(f"there is no replica {fault.replica}", "one that this run has")
        await strike(fault)
        self._told.append(fault)
