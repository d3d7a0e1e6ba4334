"""Strikes a run whose controller is another process, until the plan or the run is over.

Owns ``strike_live``, which ``danaus chaos`` calls.
"""

from __future__ import annotations

import os
import threading

from danaus.app.campaign import Campaign
from danaus.app.chaos import FaultPlan
from danaus.app.chaos_lab import network_for
from danaus.app.chaos_strike import Striker
from danaus.app.chaos_victims import Victims
from danaus.app.chaos_view import started_at
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig, fleet_of
from danaus.app.stopping import StopSignals
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError

_LOOK_S = 0.5


def strike_live(folder: RunFolder, plan: FaultPlan, settings: RunConfig) -> int:
    """Strike a run by a plan; return the exit code: 1 if anything missed or was not struck.

    Args:
        folder: The run's.
        plan: What is done to it.
        settings: The run's.

    Raises:
        ConfigError: The run does not go on, or its network cannot be harmed.
    """
    fleet, network = fleet_of(settings, folder), network_for(plan, settings.hosts)
    alive = _Alive(Victims(folder, fleet, network))
    if not alive.now():
        raise ConfigError(
            f"{os.path.relpath(folder.path)} does not go on: no process of it is alive",
            "danaus chaos strikes a run while it trains",
        )
    since = started_at(folder)
    campaign = Campaign(folder, plan, fleet, network=network, since=since, say=_say)
    with campaign, StopSignals() as signals:
        campaign.tell_planned()
        campaign.run(threading.Event(), lambda: signals.asked is not None or not alive.lately())
        why = "" if campaign.is_done else ": the run has ended"
        if signals.asked is not None:
            why = ": stopped"
        _say(f"{_counts(campaign.striker)}{why}; record {os.path.relpath(campaign.record.path)}")
        if signals.asked is not None:
            return 128 + signals.asked
        return 1 if campaign.striker.num_missed or not campaign.is_done else 0


def _counts(striker: Striker) -> str:
    counts = f"{striker.num_struck} struck, {striker.num_missed} missed"
    asked = striker.num_open
    return f"{counts}, {asked} asked for that did not strike yet" if asked else counts


class _Alive:
    """Whether a run goes on, looked at now and then."""

    def __init__(self, victims: Victims) -> None:
        self._victims = victims
        self._next = Deadline.after(_LOOK_S)
        self._is_alive = True

    def now(self) -> bool:
        """Look."""
        self._is_alive = self._victims.any_alive
        return self._is_alive

    def lately(self) -> bool:
        """Return what the last look showed; look again if that is a while ago."""
        if self._next.passed:
            self._next = Deadline.after(_LOOK_S)
            self.now()
        return self._is_alive


def _say(line: str) -> None:
    print(line, flush=True)
