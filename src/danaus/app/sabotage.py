"""A flipped bit, on purpose: what the fingerprints are there to find (Q-9).

Owns ``BitFlip``, an observer that damages one bit of the parameters in memory, once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from danaus.app.events import Event, FaultKind
from danaus.core.journal import Journal
from danaus.ft.observer import Observer
from danaus.ft.place import Place
from danaus.wire.position import Phase

if TYPE_CHECKING:
    from torch import Tensor

_BIT = 1 << 12
"""Of a float's fraction: small enough to look sane."""


class Damaged(Protocol):
    """What a bit is flipped in."""

    place: Place

    def state(self) -> dict[str, Tensor]:
        """Return every tensor by name."""
        ...


class BitFlip(Observer):
    """Flip one bit of the first parameter while a step is computed.

    Args:
        work: What is damaged.
        step: In which step.
        journal_path: Where it is owned up to.
        phase: Where in the step.
    """

    def __init__(
        self,
        work: Damaged,
        step: int,
        journal_path: Path,
        *,
        phase: Phase = Phase.COMPUTE,
    ) -> None:
        self._work, self._step, self._phase = work, step, phase
        self._journal = Journal(journal_path)
        self._done = False

    def entered(self, step: int, phase: Phase, number: int) -> None:
        if self._done or phase is not self._phase or step < self._step:
            return
        self._done = True
        name, tensor = next(iter(self._work.state().items()))
        place = self._work.place
        self._journal.record(
            Event.FAULT_INJECTED,
            fault=f"bit-{step}",
            kind=FaultKind.FLIP_BIT,
            target=place.replica_id,
            process_id=place.process_id,
            incarnation=place.incarnation,
            text=f"one bit of {name} flipped in {place.replica_id}",
        )
        import torch  # in a worker only: the controller, which imports this, loads none

        with torch.no_grad():
            tensor.view(torch.int32).view(-1)[0] ^= _BIT


def flip_in_first_life(
    step: int, journal_path: Path, *, phase: Phase = Phase.COMPUTE
) -> Callable[[Damaged], Observer]:
    """Return what makes a ``BitFlip`` in a replica's first incarnation, and nothing in others."""
    return _Flipper(step, journal_path, phase)


class _Flipper:
    def __init__(self, step: int, journal_path: Path, phase: Phase) -> None:
        self._step, self._journal_path, self._phase = step, journal_path, phase

    def __call__(self, work: Damaged) -> Observer:
        if work.place.incarnation:
            return Observer()
        return BitFlip(work, self._step, self._journal_path, phase=self._phase)
