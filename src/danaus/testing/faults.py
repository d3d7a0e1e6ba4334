"""Faults at exact moments, for tests: a process that signals itself inside a named phase.

Owns ``Strike``, which a test hands to a run as an observer's maker, ``Linger``, which makes a
learner slow, and ``WaitForDisk``, beside ``app.pace``'s ``Pace``, which gives faults from outside
the time to strike.  A strike's signal is real and is sent by the victim to itself, so that the
moment is exact; everything after it is the product's.  It is written to the run's journal just
before, so that a test can tell that it really hit.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from danaus.actor.process_runtime import context
from danaus.app.chaos_inside import Occasions, claim, record_strike
from danaus.app.events import FaultKind
from danaus.app.pace import Pace
from danaus.app.run_folder import RunFolder
from danaus.core.clock import Deadline
from danaus.ft.ledger import Committed
from danaus.ft.observer import Moment, Observer
from danaus.ft.work import StepResult
from danaus.testing.watching import RunWatch
from danaus.train.replica import ReplicaWork
from danaus.wire.position import Phase

__all__ = ["FORWARD", "JOIN", "REDUCE", "VOTE", "Linger", "Pace", "Strike", "WaitForDisk"]

FORWARD = "forward"
REDUCE = "reduce"
VOTE = "vote"
JOIN = "join"

_DISK_LIMIT_S = 20.0
_KINDS = {signal.SIGKILL: FaultKind.KILL, signal.SIGSTOP: FaultKind.HANG}


@dataclass(frozen=True, slots=True)
class WaitForDisk:
    """Makes an observer that waits for a checkpoint, so that a test knows what is on the disk.

    Args:
        every_steps: Of the run; it waits one step after each, when the votes have settled it.
    """

    every_steps: int = 4

    def __call__(self, work: ReplicaWork) -> Observer:
        return _Waiting(work, self.every_steps)


class _Waiting(Observer):
    def __init__(self, work: ReplicaWork, every_steps: int) -> None:
        self._work, self._every_steps = work, every_steps

    def committed(self, line: Committed, result: StepResult) -> None:
        deadline = Deadline.after(_DISK_LIMIT_S)
        if line.step % self._every_steps == 1:
            while self._work.save_note(line.step).busy and not deadline.passed:
                threading.Event().wait(0.005)


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
        at_strength: Strike only once so many replicas have committed a step together that they
            began after the last strike of the run.
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
        self._step = 0
        self._began_at = self._strong_at = 0.0
        self._over = False
        if strike.where == FORWARD:
            self.watch_forward()

    def entered(self, step: int, phase: Phase, number: int) -> None:
        if phase is Phase.COMPUTE and step != self._step:
            self._step, self._began_at = step, time.monotonic()
        super().entered(step, phase, number)

    def committed(self, line: Committed, result: StepResult) -> None:
        if len(line.leaves) >= self._strike.at_strength:
            self._strong_at = self._began_at

    def reach(self, where: str, step: int) -> None:
        strike = self._strike
        if self._over or where != strike.where or step < strike.step:
            return
        place = self.work.place
        name = strike.id_of(place.replica_id)
        with _LastStrike(Path(context().proc.run_dir)) as last:
            if strike.at_strength and self._strong_at <= last.at:
                return
            self._over = True
            if not claim(last.run_dir, name):
                return
            record_strike(
                place,
                name,
                kind=_KINDS.get(strike.number, FaultKind.OUTSIDE),
                text=f"{strike.number.name} of {place.member}: {where} of step {step}",
                step=step,
                where=where,
            )
            last.write()
        os.kill(os.getpid(), strike.number)


@dataclass(frozen=True, slots=True)
class Linger:
    """Makes an observer that keeps a learner in its transfer until the others have gone on.

    Args:
        num_steps: So many steps.
        incarnation: Of the learner that is kept.
        held: Whether it is kept as well where the others stand still for it.
    """

    num_steps: int
    incarnation: int = 1
    held: bool = False

    def __call__(self, work: ReplicaWork) -> Observer:
        return _Lingerer(self) if work.place.incarnation == self.incarnation else Observer()


class _Lingerer(Observer):
    def __init__(self, linger: Linger) -> None:
        self._linger, self._kept = linger, False

    def learning(self, step: int, donors: tuple[str, ...], *, trails: bool) -> None:
        self._kept = trails or self._linger.held

    def moment(self, moment: Moment, step: int) -> None:
        if self._kept and moment is Moment.LEARNING:
            self._kept = False
            watch = RunWatch(RunFolder.open(Path(context().proc.run_dir)))
            watch.until_moved(self._linger.num_steps, limit_s=60.0)


class _LastStrike:
    """When a run was last struck, held by one victim at a time: two never strike on one reading.

    Args:
        run_dir: The run's folder.

    Attributes:
        at: In this machine's steady time.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def __enter__(self) -> Self:
        self._file = (self.run_dir / "control" / "last-strike").open("a+")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.seek(0)
        self.at = float(self._file.read() or 0)
        return self

    def write(self) -> None:
        """Write down that it is struck now."""
        self._file.truncate(0)
        self._file.write(repr(time.monotonic()))
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.close()
