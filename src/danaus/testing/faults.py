"""Faults at exact moments, for tests: a process that signals itself inside a named phase.

Owns ``Strike``, which a test hands to a run as an observer's maker, and ``Pace``, which gives
faults from outside the time to strike.  A strike's signal is real and is sent by the victim to
itself, so that the moment is exact; everything after it is the product's.  It is written to the
run's journal just before, so that a test can tell that it really hit.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from danaus.actor.process_runtime import context
from danaus.app.events import Event, FaultKind
from danaus.core.journal import Journal
from danaus.ft.ledger import Committed
from danaus.ft.observer import Moment, Observer
from danaus.ft.work import StepResult
from danaus.train.replica import ReplicaWork
from danaus.wire.position import Phase

FORWARD = "forward"
REDUCE = "reduce"
VOTE = "vote"
JOIN = "join"

_KINDS = {signal.SIGKILL: FaultKind.KILL, signal.SIGSTOP: FaultKind.HANG}
_PHASES = {VOTE: Phase.VOTE, JOIN: Phase.JOIN}


@dataclass(frozen=True, slots=True)
class Strike:
    """Makes an observer that strikes its own process; each strike of a run hits once.

    Args:
        where: ``"forward"`` (inside the network), ``"reduce"`` and ``"vote"`` (inside the
            exchange), ``"join"`` (about to ask for the next quorum), or a ``Moment``.
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


class _Striker(Observer):
    def __init__(self, strike: Strike, work: ReplicaWork) -> None:
        self._strike, self._work = strike, work
        self._step = 0
        self._phase = Phase.START
        self._strong_at = 0.0
        self._over = False
        if strike.where == FORWARD:
            _middle(work.trainer.network).register_forward_pre_hook(self._in_forward)

    def entered(self, step: int, phase: Phase, number: int) -> None:
        self._step, self._phase = step, phase
        if phase is Phase.REDUCE and number:
            self._reach(REDUCE, step)
        elif phase is _PHASES.get(self._strike.where) and (number or phase is Phase.JOIN):
            self._reach(self._strike.where, step)

    def moment(self, moment: Moment, step: int) -> None:
        self._reach(moment, step)

    def committed(self, line: Committed, result: StepResult) -> None:
        if len(line.leaves) >= self._strike.at_strength:
            self._strong_at = line.at

    def _in_forward(self, _module: nn.Module, _inputs: Any) -> None:
        if self._phase is Phase.COMPUTE:
            self._reach(FORWARD, self._step)

    def _reach(self, where: str, step: int) -> None:
        strike = self._strike
        if self._over or where != strike.where or step < strike.step:
            return
        run_dir = Path(context().proc.run_dir)
        if strike.at_strength and self._strong_at <= _last_strike(run_dir):
            return
        self._over = True
        place = self._work.place
        name = strike.id_of(place.replica_id)
        if not _first(run_dir / "control" / f"strike-{name}"):
            return
        with Journal(run_dir / "journal.jsonl") as journal:
            journal.record(
                Event.FAULT_INJECTED,
                fault=name,
                kind=_KINDS.get(strike.number, FaultKind.OUTSIDE),
                target=place.replica_id,
                rank=place.rank,
                incarnation=place.incarnation,
                process_id=place.process_id,
                pid=os.getpid(),
                step=step,
                where=where,
                text=f"{strike.number.name} of {place.member}: {where} of step {step}",
            )
        os.kill(os.getpid(), strike.number)


def _first(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def _last_strike(run_dir: Path) -> float:
    """Return when the run was last struck."""
    struck = (run_dir / "control").glob("strike-*")
    return max((each.stat().st_mtime for each in struck), default=0.0)


def _middle(network: nn.Module) -> nn.Module:
    """Return a block in the middle of a network, so that part of a forward is done."""
    blocks = getattr(network, "blocks", None)
    return blocks[len(blocks) // 2] if isinstance(blocks, nn.ModuleList) else network


@dataclass(frozen=True, slots=True)
class Pace:
    """Makes an observer that gives each step a length, for as long as a file is not there.

    A tiny network's run would be over before anything could strike it from outside, or before a
    dead replica is back.

    Args:
        step_s: Seconds that a step takes at least.
        until: The file that ends this; ``Path.touch`` it to let the run finish.
        below: Only while fewer replicas than this commit a step together; None: always.
    """

    step_s: float
    until: Path
    below: int | None = None

    def __call__(self, work: ReplicaWork) -> Observer:
        return _Paced(self)


class _Paced(Observer):
    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._step = self._strength = 0
        self._never = threading.Event()

    def entered(self, step: int, phase: Phase, number: int) -> None:
        if phase is not Phase.COMPUTE or step == self._step:
            return
        self._step = step
        below = self._pace.below
        if (below is None or self._strength < below) and not self._pace.until.exists():
            self._never.wait(self._pace.step_s)

    def committed(self, line: Committed, result: StepResult) -> None:
        self._strength = len(line.leaves)
