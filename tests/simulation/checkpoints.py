"""The simulated folder of checkpoints."""

from __future__ import annotations

from typing import Any

from tests.simulation.member import Member
from tests.simulation.model import Model, seed_model

from danaus.quorum.messages import Epoch

CHECKPOINT_EVERY = 2


class Checkpoints:
    """The shared folder of checkpoints: valid once every rank of one epoch is there."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._files: dict[int, dict[int, Model]] = {0: {}}
        self._agreed: set[int] = {0}
        self._damaged: set[int] = set()
        self.full_until: dict[str, float] = {}  # of a replica's disk

    def offer(self, member: Member) -> None:
        """Save a member's state if it is its turn."""
        step, told = member.model.step, member.machine._standing
        if step % CHECKPOINT_EVERY or told is None:
            return
        if told.replica_ids[0] != member.who.replica_id:
            return
        if self.full_until.get(member.who.replica_id, 0.0) > member.engine.now:
            return
        files = self._files.setdefault(step, {})
        if any(model.epoch != member.model.epoch for model in files.values()):
            files.clear()
            self._agreed.discard(step)
        files[member.who.rank] = member.model
        self._damaged.discard(step)
        if len(files) == self._world.plan.ranks:
            for other in self._world.living():
                other.later(0.001, other.saved, step, files[other.who.rank].fingerprint)

    def agreed(self, step: int) -> None:
        self._agreed.add(step)

    def newest(self) -> int:
        good = [
            step
            for step, files in self._files.items()
            if step == 0 or (step in self._agreed and len(files) == self._world.plan.ranks)
        ]
        return max(step for step in good if step not in self._damaged)

    def load(self, step: int, rank: int) -> Model | None:
        if step == 0:
            return seed_model(rank)
        if step in self._damaged:
            return None
        return self._files.get(step, {}).get(rank)

    def forget_after(self, step: int, epoch: Epoch) -> None:
        """Void what a rollback has left behind."""
        for later in [s for s in self._files if s > step]:
            files = self._files[later]
            if all(m.epoch is not None and m.epoch.term < epoch.term for m in files.values()):
                del self._files[later]
                self._agreed.discard(later)

    def damage(self) -> None:
        self._damaged |= {self.newest()} - {0}
