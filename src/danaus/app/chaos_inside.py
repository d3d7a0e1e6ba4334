"""Faults that happen inside a worker, at exact moments of its steps.

Owns ``Occasions`` (the moments of a step by name), ``Inside``, which strikes the process that it
lives in, and ``make_inside``, which puts a planned fault into a run as an observer's maker.  What
a fault does is ``chaos_effects``'s; here is when, how often, and what the journal says: each fault
is written down just before it strikes, so that whoever reads it knows that it really hit.

A controller imports this, so it loads no torch.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from danaus.actor.process_runtime import context
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_spec import write
from danaus.app.events import Event, FaultKind
from danaus.core.errors import ConfigError
from danaus.core.journal import Journal
from danaus.ft.observer import Moment, Observer
from danaus.ft.place import Place
from danaus.wire.position import Phase

if TYPE_CHECKING:
    from torch import Tensor, nn

_EXCHANGES = (Phase.REDUCE, Phase.VOTE)
"""Here a moment is inside the exchange, which is numbered, and not just before it."""


class Struck(Protocol):
    """What is trained in a worker, as faults see it: ``train.replica.ReplicaWork``."""

    trainer: Any
    place: Place

    def compute_leaf(self, step: int, microbatches: range) -> Tensor:
        """Return the gradient of one leaf."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return every tensor by name."""
        ...


class Occasions(Observer):
    """Calls ``reach`` with the name of each moment that a step comes to.

    Args:
        work: What is trained.
    """

    def __init__(self, work: Struck) -> None:
        self.work = work
        self._step = 0
        self._phase = Phase.START
        self._in_network = False

    def reach(self, where: str, step: int) -> None:
        """The process is at this moment of a step, one of ``chaos_kinds.PHASES``."""

    def watch_forward(self) -> None:
        """Reach ``"forward"`` too, from now on: the middle of the network."""
        if not self._in_network:
            self._in_network = True
            _middle(self.work.trainer.network).register_forward_pre_hook(self._in_forward)

    def watch_again(self) -> None:
        """Watch the network that the work has now: it was built anew."""
        if self._in_network:
            self._in_network = False
            self.watch_forward()

    def entered(self, step: int, phase: Phase, number: int) -> None:
        self._step, self._phase = step, phase
        if number or phase not in _EXCHANGES:
            self.reach(phase.name.lower(), step)

    def moment(self, moment: Moment, step: int) -> None:
        self.reach(moment, step)

    def _in_forward(self, _module: nn.Module, _inputs: Any) -> None:
        if self._phase is Phase.COMPUTE:
            self.reach("forward", self._step)


def _middle(network: Any) -> Any:
    """Return a block in the middle of a network, so that part of a forward is done."""
    blocks = getattr(network, "blocks", ())
    return blocks[len(blocks) // 2] if len(blocks) else network


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault as it strikes this process.

    Args:
        fault: What.
        work: What is trained here.
        step: In which step.
        where: At which moment of it.
        text: Words for a person.
    """

    fault: Fault
    work: Struck
    step: int
    where: str
    text: str = ""

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return Path(context().proc.run_dir)

    @property
    def has_struck(self) -> bool:
        """Tell whether it struck in an earlier life of this process."""
        return _mark(self.run_dir, name_of(self.fault, self.work.place)).exists()

    def say(self) -> bool:
        """Write it down; false if it has struck before, in an earlier life of this process."""
        name = name_of(self.fault, self.work.place)
        if not claim(self.run_dir, name):
            return False
        record_strike(
            self.work.place,
            name,
            kind=self.fault.kind,
            text=f"{self.text} ({self.work.place.member}, step {self.step})",
            spec=write(self.fault),
            step=self.step,
            where=self.where,
        )
        return True

    def miss(self, reason: str) -> None:
        """Write down that it cannot be done here; no later life of this process tries it again."""
        place = self.work.place
        name = name_of(self.fault, place)
        with contextlib.suppress(OSError):
            claim(self.run_dir, name)
        with Journal(self.run_dir / "journal.jsonl") as journal:
            journal.record(
                Event.FAULT_MISSED,
                fault=name,
                kind=self.fault.kind,
                target=place.replica_id,
                reason=reason,
            )


class Inside(Occasions):
    """Strikes the process that it lives in.

    Args:
        work: What is trained here.
        planned: What is to strike, each once its step and its moment have come.
    """

    def __init__(self, work: Struck, planned: tuple[Fault, ...] = ()) -> None:
        super().__init__(work)
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []
        for fault in planned:
            self.strike(fault)

    def strike(self, fault: Fault) -> None:
        """Strike once the fault's step and its moment have come; from any thread.

        A fault that turns out to be impossible here is written down as missed.
        """
        if fault.at_phase == "forward":
            self.watch_forward()
        with self._lock:
            self._waiting.append(fault)

    def reach(self, where: str, step: int) -> None:
        if not self._waiting:
            return
        with self._lock:
            due = [each for each in self._waiting if _is_due(each, where, step)]
            self._waiting = [each for each in self._waiting if each not in due]
        for fault in due:
            self._hit(fault, where, step)

    def _hit(self, fault: Fault, where: str, step: int) -> None:
        blow = Blow(fault, self.work, step, where)
        try:
            again = _effects().strike(blow)
        except (ConfigError, OSError) as impossible:  # a disk that is full, say
            blow.miss(str(impossible))
            return
        if again:
            self.strike(fault)


def make_inside(fault: Fault) -> Callable[[Struck], Observer]:
    """Return an observer's maker that strikes with a planned fault, once in the run.

    Args:
        fault: Its step and its moment are waited for; without a rank it hits rank 0.
    """
    return _Maker(fault)


@dataclass(frozen=True, slots=True)
class _Maker:
    fault: Fault

    def __call__(self, work: Struck) -> Observer:
        place, fault = work.place, self.fault
        elsewhere = fault.replica is not None and place.replica_id != f"replica-{fault.replica}"
        if elsewhere or place.rank != (fault.rank or 0):
            return Observer()
        return Inside(work, (fault,))


def name_of(fault: Fault, place: Place) -> str:
    """Return what the journal calls a fault that strikes a process."""
    where = fault.where or fault.at_phase or "inside"
    return fault.id or f"{place.replica_id}.{place.rank}-{fault.kind}-{where}-{fault.at_step or 0}"


def claim(run_dir: Path, name: str) -> bool:
    """Tell whether nobody has struck under this name in the run; nobody else can from now on."""
    try:
        os.close(os.open(_mark(run_dir, name), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def has_struck(run_dir: Path, fault: Fault) -> bool:
    """Tell whether a resolved fault has struck in a run, or turned out to be impossible."""
    return _mark(run_dir, fault.id).exists()


def _mark(run_dir: Path, name: str) -> Path:
    return run_dir / "control" / f"strike-{name.replace('/', '-')}"


def record_strike(place: Place, name: str, *, kind: FaultKind, text: str, **facts: object) -> None:
    """Write down that this process is struck."""
    with Journal(Path(context().proc.run_dir) / "journal.jsonl") as journal:
        journal.record(
            Event.FAULT_INJECTED,
            fault=name,
            kind=kind,
            target=place.replica_id,
            rank=place.rank,
            incarnation=place.incarnation,
            process_id=place.process_id,
            pid=os.getpid(),
            text=text,
            **facts,
        )


def _is_due(fault: Fault, where: str, step: int) -> bool:
    return _effects().occasion_of(fault) == where and step >= (fault.at_step or 0)


def _effects() -> Any:
    """Return the module that knows what faults do; it loads torch, in a worker only."""
    return import_module("danaus.app.chaos_effects")
