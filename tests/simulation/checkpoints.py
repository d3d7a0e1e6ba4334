"""The simulated folder of checkpoints."""

from __future__ import annotations

from typing import Any

from tests.simulation.member import Member
from tests.simulation.model import Model, seed_model

from danaus.ft import saving
from danaus.ft.step_events import Votes
from danaus.quorum.messages import Epoch

CHECKPOINT_EVERY = 2


class Checkpoints:
    """The shared folder of checkpoints: one is valid once every rank of one epoch is there.

    A rank writes beside the training; what it has written counts once a vote has found all
    members to share the state that it is of.
    """

    def __init__(self, world: Any) -> None:
        self._world = world
        self._files: dict[int, dict[int, Model]] = {0: {}}
        self._voids: list[tuple[int, Epoch]] = []
        self._damaged: set[int] = set()
        self.full_until: dict[str, float] = {}  # of a replica's disk

    def offer(self, member: Member) -> None:
        """Begin to write a member's state if it is its turn."""
        step, told = member.model.step, member.machine._standing
        if step % CHECKPOINT_EVERY or told is None or member.writing is not None:
            return
        if told.replica_ids[0] != member.who.replica_id:
            return
        if self.full_until.get(member.who.replica_id, 0.0) > member.engine.now:
            return
        member.writing = member.model

    def ended(self, member: Member) -> None:
        """All have ended with one state: this one's replica sees that it is on the disk."""
        if member.model.epoch is not None and member.model.step % CHECKPOINT_EVERY == 0:
            member.writing = None
            self._put(member, member.model)

    def voted(self, member: Member, step: int, votes: Votes) -> None:
        """Bring what a member has written to the disk if the votes agree with it."""
        model = member.writing
        if model is None:
            return
        rank = member.who.rank
        seen = {vote.fingerprint for voter, vote in votes.items() if voter.rank == rank}
        found = saving.verdict(model.fingerprint, seen) if model.step == step - 1 else "open"
        if found == "agreed":
            member.later(member.engine.random.uniform(0.0, 0.2), self.finish, member, model)
        elif found == "wrong" or model.step < step - 1:
            member.writing = None

    def finish(self, member: Member, model: Model) -> None:
        if member.writing is model:
            member.writing = None
            self._put(member, model)

    def _put(self, member: Member, model: Model) -> None:
        if any(self._is_void(model, step, epoch) for step, epoch in self._voids):
            return
        files = self._files.setdefault(model.step, {})
        if any(other.epoch != model.epoch for other in files.values()):
            files.clear()
        files[member.who.rank] = model
        self._damaged.discard(model.step)
        if len(files) == self._world.plan.ranks:
            for other in self._world.living():
                other.later(0.001, other.saved, model.step)

    def newest(self) -> int:
        good = [
            step
            for step, files in self._files.items()
            if step == 0 or len(files) == self._world.plan.ranks
        ]
        return max(step for step in good if step not in self._damaged)

    def load(self, step: int, rank: int) -> Model | None:
        if step == 0:
            return seed_model(rank)
        if step in self._damaged:
            return None
        return self._files.get(step, {}).get(rank)

    def forget_after(self, step: int, epoch: Epoch) -> None:
        """Void what a rollback has left behind, and what is yet to come of it."""
        self._voids.append((step, epoch))
        for later, files in list(self._files.items()):
            if files and all(self._is_void(model, step, epoch) for model in files.values()):
                del self._files[later]

    def _is_void(self, model: Model, step: int, epoch: Epoch) -> bool:
        return model.step > step and model.epoch is not None and model.epoch.term < epoch.term

    def damage(self) -> None:
        self._damaged |= {self.newest()} - {0}
