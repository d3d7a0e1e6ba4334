"""Faults at exact moments, for tests: a process that signals itself inside a named phase.

Owns ``Strike``, which a test hands to a run as an observer's maker, beside ``app.pace``'s ``Pace``,
which gives faults from outside the time to strike.  A strike's signal is real and is sent by the
victim to itself, so that the moment is exact; everything after it is the product's.  It is written
to the run's journal just before, so that a test can tell that it really hit.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from danaus.actor.process_runtime import context
from danaus.app.chaos_inside import Occasions, claim, record_strike
from danaus.app.events import FaultKind
from danaus.app.pace import Pace
from danaus.ft.ledger import Committed
from danaus.ft.observer import Observer
from danaus.ft.work import StepResult
from danaus.train.replica import ReplicaWork

__all__ = ["FORWARD", "JOIN", "REDUCE", "VOTE", "Pace", "Strike"]

FORWARD = "forward"
REDUCE = "reduce"
VOTE = "vote"
JOIN = "join"

_KINDS = {signal.SIGKILL: FaultKind.KILL, signal.SIGSTOP: FaultKind.HANG}


@dataclass(frozen=True, slots=True)
class Strike:
    """Makes an observer that strikes its own process; each strike of a run hits once.

    Args:
        where: A moment of a step as ``Occasions`` names it: ``"forward"`` (inside the network),
            ``"reduce"`` and ``"vote"`` (inside the exchange), ``"join"`` (about to ask for the
            next quorum), or a ``Moment``.
        step: The first step in which it may strike.
        incarnation: Of the victim; None: whichever comes first.
        rank: Of the victim.
        number: Signal to send.
        at_strength: Strike only once so many replicas have committed a step together since the
            last strike of the run.
        name: Of the strike; of those with the same name the first to come hits, the others do not.
    """

    where: str
    step: int = 0
    incarnation: int | None = None
    rank: int = 0
    number: signal.Signals = signal.SIGKILL
    at_strength: int = 0
    name: str = ""

    def __call__(self, work: ReplicaWork) -> Observer:
        place = work.place
        if place.rank != self.rank or self.incarnation not in (None, place.incarnation):
            return Observer()
        return _Striker(self, work)

    def id_of(self, replica_id: str) -> str:
        """Return what the journal calls this strike on a replica."""
        incarnation = "" if self.incarnation is None else f"#{self.incarnation}"
        return self.name or f"{replica_id}.{self.rank}{incarnation}-{self.where}-{self.step}"


class _Striker(Occasions):
    def __init__(self, strike: Strike, work: ReplicaWork) -> None:
        super().__init__(work)
        self._strike = strike
        self._strong_at = 0.0
        self._over = False
        if strike.where == FORWARD:
            self.watch_forward()

    def committed(self, line: Committed, result: StepResult) -> None:
        if len(line.leaves) >= self._strike.at_strength:
            self._strong_at = line.at

    def reach(self, where: str, step: int) -> None:
        strike = self._strike
        if self._over or where != strike.where or step < strike.step:
            return
        run_dir = Path(context().proc.run_dir)
        if strike.at_strength and self._strong_at <= _last_strike(run_dir):
            return
        self._over = True
        place = self.work.place
        name = strike.id_of(place.replica_id)
        if claim(run_dir, name):
            record_strike(
                place,
                name,
                kind=_KINDS.get(strike.number, FaultKind.OUTSIDE),
                text=f"{strike.number.name} of {place.member}: {where} of step {step}",
                step=step,
                where=where,
            )
            os.kill(os.getpid(), strike.number)


def _last_strike(run_dir: Path) -> float:
    """Return when the run was last struck."""
    struck = (run_dir / "control").glob("strike-*")
    return max((each.stat().st_mtime for each in struck), default=0.0)
