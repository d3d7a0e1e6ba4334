"""What the ledgers of a whole run must tell."""

from __future__ import annotations

from typing import Any

from tests.simulation.engine import Violation
from tests.simulation.member import Member
from tests.simulation.model import Model

from danaus.ft.step_events import Ballot
from danaus.quorum.messages import Epoch


def check_history(monitor: Any, member: Member) -> None:
    """T-7: the ledgers agree, and tell of each step and each sample once."""
    surviving: dict[int, set[tuple[Epoch, tuple[int, ...]]]] = {}
    for _, step, epoch, _, leaves in monitor.ledger:
        if not rolled_back(monitor.recorded, step, epoch):
            surviving.setdefault(step, set()).add((epoch, leaves))
    twice = {step: lines for step, lines in surviving.items() if len(lines) > 1}
    if twice:
        raise Violation("T-7", f"the ledgers disagree: {twice}")
    model: Model | None = member.model
    steps = []
    while model is not None and model.past is not None:
        steps.append(model.step)
        told = (model.epoch, model.leaves) in surviving.get(model.step, ())
        if model.epoch and not told and not _came_again(monitor, member.who.rank, model):
            raise Violation("T-7", f"step {model.step} of {model.epoch} is in no ledger")
        model = model.past
    if steps != list(range(monitor.world.plan.steps, 0, -1)):
        raise Violation("T-7", f"{member.name} is made of steps {steps}")


def _came_again(monitor: Any, rank: int, model: Model) -> bool:
    """Tell whether a step that was rolled back was taken again, to the same bits (Q-9)."""
    if model.epoch is None or not rolled_back(monitor.recorded, model.step, model.epoch):
        return False
    _, prints = monitor.lineage.get(model.step, (None, {}))
    return prints.get(rank) == (model.gradient, model.chain)


def rolled_back(rollbacks: list[tuple[int, int]], step: int, epoch: Epoch) -> bool:
    return any(epoch.term < term and step > to for term, to in rollbacks)


def against(ballots: list[Ballot]) -> bool:
    """Tell whether these ballots of one attempt speak against it."""
    by_rank: dict[int, set[tuple[str, str]]] = {}
    for ballot in ballots:
        by_rank.setdefault(ballot.member.rank, set()).add((ballot.digest, ballot.fingerprint))
    refused = any(ballot.vote != "prepared" for ballot in ballots)
    return refused or any(len(prints) > 1 for prints in by_rank.values())
