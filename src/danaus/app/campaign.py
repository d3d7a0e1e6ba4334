"""A campaign: a run is looked at, and struck when its plan says so.

Owns ``Campaign``, which the controller of a run starts for ``danaus train --chaos``, and the
``danaus chaos`` command for a run that goes on already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from danaus.app.chaos import FaultPlan, Fleet
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_log import RecordFile
from danaus.app.chaos_record import plan_line
from danaus.app.chaos_schedule import Schedule, Seen
from danaus.app.chaos_strike import TICK_S, Network, Striker
from danaus.app.chaos_victims import Victims
from danaus.app.chaos_view import RunView
from danaus.app.crew_file import read_crew
from danaus.app.door import Door
from danaus.app.events import FaultKind
from danaus.app.run_folder import RunFolder
from danaus.core.journal import Journal


class Campaign:
    """Strike one run by one plan.  Make it, ``run`` it once, close it.

    Args:
        folder: The run's.
        plan: What is done to it.
        fleet: What the run has.
        network: Between its hosts; None: it cannot be harmed.
        since: What the run wrote before, in seconds since 1970, tells nothing of it.
        say: Told of each fault, for a person.

    Raises:
        ConfigError: A target of the plan is not there, or no record can be made.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: FaultPlan,
        fleet: Fleet,
        *,
        network: Network | None = None,
        since: float = 0.0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        Schedule(plan, fleet)  # before anything is written: it checks the targets
        self.record = RecordFile(folder)
        self.record.write(plan_line(plan, fleet))
        self._schedule = Schedule(plan, fleet, name=self.record.name)
        self._victims = Victims(folder, fleet, network)
        self._journal = Journal(folder.journal_path)
        self.striker = Striker(
            self._victims, self.record, self._journal, door=Door(folder), network=network, say=say
        )
        self._folder, self._fleet, self._num_at_once = folder, fleet, 0
        self._view = RunView(folder, self._names(), since=since)
        self._began_s: float | None = None

    def take_planned(self) -> tuple[Fault, ...]:
        """Return the faults that their victims are to be told of before they start."""
        for fault in self._schedule.planned:
            self.striker.expect(fault)
        return self._schedule.planned

    def tell_planned(self) -> None:
        """Tell victims that train already."""
        for fault in self._schedule.planned:
            self.striker.strike(fault)

    def run(self, stopped: threading.Event, is_over: Callable[[], bool] = lambda: False) -> None:
        """Look and strike until the plan is over, the run is, or ``stopped`` is set.

        Whoever was asked to strike itself is waited for.
        """
        try:
            while not (stopped.wait(TICK_S) or self.is_done or is_over()):
                self.look()
        finally:
            self.striker.close()

    def look(self) -> None:
        """Look once, strike with what is due, and go on with what lasts."""
        self._view.follow(self._names())
        self._view.look()
        if self._view.has_begun:
            now_s = time.monotonic()
            self._began_s = now_s if self._began_s is None else self._began_s
            seen = Seen(self._view.step, now_s - self._began_s, all_back=self.all_back)
            self.strike(self._schedule.handle(seen))
        self.striker.tick()

    def strike(self, faults: Sequence[Fault]) -> None:
        """Strike with resolved faults, one right after the other."""
        for fault in faults:
            self.striker.strike(fault)
            self._view.mark()

    def strike_now(self, *specs: str) -> None:
        """Strike with these faults at once, whatever the plan says.

        Raises:
            ConfigError: One cannot be read, or its target is not there.
        """
        self._num_at_once += 1
        name = f"{self.record.name}-now{self._num_at_once}"
        schedule = Schedule(FaultPlan.parse(*specs), self._fleet, name=name)
        self.strike(schedule.handle(Seen(self._view.step, 0.0)))

    @property
    def step(self) -> int:
        """The step that the run has come to."""
        return self._view.step

    def worker_pid(self, replica: int) -> int:
        """Return the pid of a replica's first worker, 0 if it has none."""
        found = self._victims.of(Fault(kind=FaultKind.KILL, replica=replica, rank=0))
        return found[0].pid if found else 0

    @property
    def all_back(self) -> bool:
        """Whether every replica is a member, and what was struck before is back."""
        calm = self._view.all_members and not self.striker.is_lasting
        return calm and self._victims.all_well

    @property
    def is_done(self) -> bool:
        """Whether nothing is left of the plan, and all that it asked for was heard of."""
        return self.is_over and not self.striker.num_open

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the plan but what victims wait to do to themselves."""
        return self._schedule.is_over and not self.striker.is_lasting

    def _names(self) -> list[str]:
        """Return the replicas that are to train now: a run may be scaled while it is struck."""
        crew = read_crew(self._folder.control)
        places = self._fleet.places if crew is None else crew.places
        return [f"replica-{place}" for place in places]

    def close(self) -> None:
        """Close the files."""
        self.record.close()
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
