"""What must be true of learners and their donors, as the monitor sees it (H-1)."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.engine import Violation
from tests.simulation.member import Member

from danaus.quorum.messages import Announcement, Epoch

Lineage = Mapping[int, tuple[Epoch, dict[int, tuple[str, str]]]]


def teaches_truly(told: Announcement, last: Announcement | None) -> None:
    """Donors are members; who has no trail is waited for, who has one began it somewhere."""
    members = {seat.member for seat in told.members}
    begun = {each.seat.member: each.trail for each in last.learners} if last else {}
    for learner in told.learners:
        name, trail = learner.seat.member, learner.trail
        if not members.issuperset(donor.member for donor in learner.donors):
            raise Violation("H-1", f"{told.epoch} has {name} learn of who is no member")
        if trail is None and not (told.hold or told.finished):
            raise Violation("H-1", f"{told.epoch} goes on without {name}, which is not served")
        if trail is not None and trail.epoch != told.epoch and begun.get(name) != trail:
            raise Violation("H-1", f"{name} trails in {told.epoch} since {trail}")


def replayed_truly(lineage: Lineage, member: Member) -> None:
    """What a learner makes of gradients is what the members made of them."""
    model = member.model
    known = lineage.get(model.step)
    if model.tainted or known is None or known[0] != model.epoch:
        return
    mine = (model.gradient, model.chain)
    if known[1].get(member.who.rank, mine) != mine:
        raise Violation("H-1", f"{member.name} replays step {model.step} to {mine}, not {known[1]}")
