"""How a decided quorum becomes an announcement.

Owns epochs, the choice between going on and restoring, learners' donors, and the announcement
itself.  Pure functions over what ``quorum.state`` knows.

Invariants:
    Q-1: epochs only grow; a new term lies above every term that any asker has seen.
    H-1: a learner is in the announcement, not in the quorum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from danaus.quorum.agreement import Agreement
from danaus.quorum.decision import Decision
from danaus.quorum.donors import plan_healing
from danaus.quorum.messages import (
    Announcement,
    Epoch,
    Learner,
    Outcome,
    QuorumRecord,
    Seat,
    Start,
)
from danaus.quorum.roster import Incarnation, Roster

BEFORE_ALL = Epoch(0, 0)


@dataclass(frozen=True, slots=True)
class History:
    """What the service knows of the run before the quorum that it forms.

    Args:
        previous: The last quorum; None: none was.
        standing: The announcement of it; None where it is known by hearsay or not at all.
        floor: No epoch up to this one may be used again.
        began: The run has, or may have, committed steps.
    """

    previous: QuorumRecord | None
    standing: Announcement | None
    floor: Epoch
    began: bool

    @property
    def by_hearsay(self) -> bool:
        """Tell whether the last quorum is known from its members only."""
        return self.previous is not None and self.standing is None


@dataclass(frozen=True, slots=True)
class Formation:
    """A quorum that is to be announced, by incarnation; ``outcome`` is the open step's."""

    members: Sequence[Incarnation]
    learners: Sequence[Incarnation]
    start: Start
    step: int
    lineage: int
    outcome: Outcome
    reason: str
    finished: bool = False


def next_epoch(floor: Epoch, seen_term: int, new_term: bool) -> Epoch:
    """Return the epoch after ``floor``, in a new term where one is asked for or was seen."""
    if new_term or seen_term > floor.term:
        return Epoch(max(floor.term, seen_term) + 1, 1)
    return Epoch(max(1, floor.term), floor.n + 1)


def why_restore(history: History, decision: Decision, restorable: int) -> str:
    """Return why nobody's memory is the run's state; empty: the holders' is.

    Args:
        history: What came before.
        decision: Who takes part, and what they agree on.
        restorable: The newest checkpoint that all who take part can restore.
    """
    agreement = decision.agreement
    assert agreement is not None
    if not agreement.holders:
        return f"replicas disagree about step {agreement.step} without a majority"
    if history.previous is None:
        if agreement.step > 0 or (restorable == 0 and not history.began):
            return ""
        return "no replica has the state of the run"
    standing = history.standing
    if decision.all_dead:
        return "" if _survived(standing, agreement) else "all of the last quorum are dead"
    if standing is None:
        lacks = agreement.step < 0 or (agreement.step == 0 and history.began)
    else:
        lacks = agreement.step < standing.committed_step or (
            standing.start == "restore" and agreement.lineage < standing.lineage_term
        )
    return "no member of the last quorum that is left has its state" if lacks else ""


def _survived(standing: Announcement | None, agreement: Agreement) -> bool:
    """Tell whether a learner holds all that the dead had committed.

    Only where they took no step since: they were waiting for it.
    """
    return (
        standing is not None
        and standing.hold
        and agreement.step == standing.committed_step
        and agreement.lineage == standing.lineage_term
    )


def announcement_of(
    formation: Formation, roster: Roster, epoch: Epoch, attempts: Mapping[str, int]
) -> Announcement:
    """Return the announcement of a quorum.

    Args:
        formation: Who is in it and where they stand.
        roster: Where the seats are.
        epoch: Its epoch.
        attempts: How often each learner has failed to learn, by replica.
    """
    renewed = formation.start == "restore" or formation.lineage == 0
    learners = _learners(formation, roster, attempts)
    return Announcement(
        epoch=epoch,
        members=_seats(formation.members, roster),
        learners=learners,
        committed_step=formation.step,
        outcome=formation.outcome,
        reason=formation.reason,
        start=formation.start,
        hold=bool(learners),
        finished=formation.finished,
        lineage_term=epoch.term if renewed else formation.lineage,
    )


def _seats(of: Sequence[Incarnation], roster: Roster) -> tuple[Seat, ...]:
    return tuple(seat for incarnation in sorted(of) for seat in roster.seats(incarnation))


def _learners(
    formation: Formation, roster: Roster, attempts: Mapping[str, int]
) -> tuple[Learner, ...]:
    """Give every rank of every learner its donors: the same rank of the members."""
    donors = {
        (seat.member.replica_id, seat.member.rank): seat
        for seat in _seats(formation.members, roster)
    }
    names = [replica_id for replica_id, _ in formation.members]
    waiting = [replica_id for replica_id, _ in formation.learners]
    learners = []
    for seat in _seats(formation.learners, roster):
        rank = seat.member.rank
        plan = plan_healing(names, waiting, rank=rank, attempts=attempts)
        order = plan[seat.member.replica_id]
        found = tuple(donors[name, rank] for name in order if (name, rank) in donors)
        learners.append(Learner(seat, found))
    return tuple(learners)
