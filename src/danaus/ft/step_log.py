"""The gradients that a donor keeps for learners that catch up while it goes on (H-1, H-3).

Owns the copies and their bound, which they share with snapshots.  A learner that has the state of
the step before the first of them comes, by applying them in order, to the state after the last.
They are kept for learners that are there, or *ahead*: for ranks of a replica that is being
repaired, for a time, and leaving room for a state.

Invariants:
    H-2: a copy is never written again; what was dropped is let go of once nobody reads it.
    What is kept is an unbroken run of steps of one lineage.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from danaus.collectives.fingerprint import digest
from danaus.collectives.tensor_bytes import view_bytes
from danaus.core.clock import Deadline
from danaus.ft.manifest import Manifest, facts_of
from danaus.ft.snapshot import Snapshot, SnapshotRoom
from danaus.quorum.messages import Epoch


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One applied step: all that applying it again elsewhere takes.

    ``gradient`` is the summed one, ``[P]`` float32, as it was before it was applied; ``numbers``
    are those that a ``Tuned`` work went by.
    """

    step: int
    epoch: Epoch
    gradient: Tensor
    measures: tuple[float, ...]
    digest: str = ""
    numbers: tuple[float, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Memory that it takes, but for a few bytes."""
        return self.gradient.numel() * self.gradient.element_size()

    def named(self) -> dict[str, Tensor]:
        """Return it as a transfer carries it."""
        facts = {
            "epoch": torch.tensor([self.epoch.term, self.epoch.n]),
            "gradient": self.gradient,
            "measures": torch.tensor(self.measures, dtype=torch.float64),
            "numbers": torch.tensor(self.numbers, dtype=torch.float64),
        }
        return {name_of(self.step, what): tensor for what, tensor in facts.items()}


def name_of(step: int, what: str) -> str:
    """Return the name of a part of a step in a transfer; names sort by step."""
    return f"{step:020d}.{what}"


def places_for(
    step: int, *, num_elements: int, num_measures: int, num_numbers: int = 0
) -> dict[str, Tensor]:
    """Return where a learner has the parts of a step written."""
    return {
        name_of(step, "epoch"): torch.zeros(2, dtype=torch.int64),
        name_of(step, "gradient"): torch.empty(num_elements),
        name_of(step, "measures"): torch.zeros(num_measures, dtype=torch.float64),
        name_of(step, "numbers"): torch.zeros(num_numbers, dtype=torch.float64),
    }


def step_in(step: int, named: dict[str, Tensor]) -> LoggedStep:
    """Return a step from what was written to its places."""
    term, n = named[name_of(step, "epoch")].tolist()
    measures = tuple(named[name_of(step, "measures")].tolist())
    numbers = tuple(named[name_of(step, "numbers")].tolist())
    gradient = named[name_of(step, "gradient")]
    return LoggedStep(step, Epoch(term, n), gradient, measures, digest(gradient), numbers)


class StepLog:
    """Steps kept, while there is somebody to keep them for; safe to use from any thread.

    Args:
        room: Whose bound counts.
    """

    def __init__(self, room: SnapshotRoom) -> None:
        self._room = room
        self._lock = threading.Lock()  # guards what follows
        self._lineage: int | None = None
        self._newest = 0
        self._kept: dict[int, LoggedStep] = {}
        self._ahead_until: Deadline | None = None
        self._free_bytes = 0  # to be left for others

    def begin(self, lineage_term: int, since: int) -> None:
        """Keep the steps after ``since`` from here on, and those that are kept already."""
        with self._lock:
            self._begin(lineage_term, since)
            self._ahead_until, self._free_bytes = None, 0

    def begin_ahead(
        self, lineage_term: int, since: int, *, until: Deadline, free_bytes: int
    ) -> None:
        """Keep the steps after ``since`` for learners that are yet to come.

        Args:
            lineage_term: Of the steps.
            since: The step that is committed now.
            until: When to give up waiting for them.
            free_bytes: To be left free of the room that there is.
        """
        with self._lock:
            if self._lineage == lineage_term and self._ahead_until is None:
                return  # there are others, for whom they are kept anyway
            self._begin(lineage_term, since)
            self._ahead_until, self._free_bytes = until, free_bytes

    def _begin(self, lineage_term: int, since: int) -> None:
        if self._lineage != lineage_term:
            self._drop_all()
            self._lineage, self._newest = lineage_term, since

    def end(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._drop_all()
        self._lineage, self._ahead_until, self._free_bytes = None, None, 0

    def copy(self, live: LoggedStep) -> LoggedStep | None:
        """Return a step to be kept once it is applied; None: there is nobody to keep it for."""
        with self._lock:
            if self._ahead_until is not None and self._ahead_until.passed:
                self._end()
            if self._lineage is None:
                return None
        return replace(live, gradient=live.gradient.clone())

    def add(self, applied: LoggedStep) -> None:
        """Keep a step; where there is no room for it the oldest go, and it goes last."""
        with self._lock:
            if self._lineage is None:
                return
            if applied.step != self._newest + 1:
                self._drop_all()
            self._newest = applied.step
            while not self._has_room_for(applied):
                if not self._kept:
                    return
                self._drop(min(self._kept))
            self._kept[applied.step] = applied

    def _has_room_for(self, applied: LoggedStep) -> bool:
        free_bytes = self._room.free_bytes - self._free_bytes
        return free_bytes >= applied.num_bytes and self._room.reserve(applied.num_bytes)

    def newest(self, lineage_term: int) -> int | None:
        """Return the newest step of a lineage, None where nothing of it is kept."""
        with self._lock:
            return self._newest if self._lineage == lineage_term else None

    def offer(self, lineage_term: int, first: int, last: int) -> Snapshot | None:
        """Return steps as they are served; None: not all of them are kept."""
        with self._lock:
            if self._lineage != lineage_term or first > last:
                return None
            steps = [self._kept.get(step) for step in range(first, last + 1)]
        found = [each for each in steps if each is not None]
        if len(found) < len(steps):
            return None
        named = {name: tensor for each in found for name, tensor in each.named().items()}
        prints = ",".join(each.digest for each in found)
        manifest = Manifest(first, prints, "", facts_of(named))
        views = [view_bytes(named[facts.name]) for facts in manifest.tensors]
        return Snapshot(manifest, views, None, on_served=None)

    def _drop_all(self) -> None:
        for step in list(self._kept):
            self._drop(step)

    def _drop(self, step: int) -> None:
        self._room.release(self._kept.pop(step).num_bytes)
