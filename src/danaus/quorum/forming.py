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
    Trail,
)
from danaus.quorum.roster import Incarnation, Roster, incarnation_of


@dataclass(frozen=True, slots=True)
class History:
    """What the service knows of the run before the quorum that it forms.

    Args:
        previous: The last quorum; None: none was.
        standing: Its announcement; None where it is known from its members only, or not at all.
        began: The run has, or may have, committed steps.
        ledger_steps: Steps that the ledgers told of when this service started.
    """

    previous: QuorumRecord | None
    standing: Announcement | None
    began: bool
    ledger_steps: int = 0


@dataclass(frozen=True, slots=True)
class Formation:
    """A quorum that is to be announced, by incarnation.

    ``outcome`` is the open step's; ``lineage`` the term of the restore that the state descends
    from, 0 for the one that begins with this quorum.  ``lenders`` are those members that keep for
    the learners in ``trailing`` what these need while nobody waits for them; ``carried`` are
    learners that trail since an earlier epoch.  Those in ``brief`` are waited for though they could
    trail; ``limit_s`` is for how long the members wait where it is for no others (0: for others).
    """

    members: Sequence[Incarnation]
    learners: Sequence[Incarnation]
    start: Start
    step: int
    lineage: int
    outcome: Outcome
    reason: str
    finished: bool = False
    lenders: Sequence[Incarnation] = ()
    trailing: Sequence[Incarnation] = ()
    carried: Sequence[Learner] = ()
    brief: Sequence[Incarnation] = ()
    limit_s: float = 0.0


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
    if standing is None and agreement.step < history.ledger_steps:
        # There was a later quorum than the last one that anybody here has heard of.
        return f"the ledger tells of {history.ledger_steps} steps, {agreement.step} are left"
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
    if standing is None or not standing.hold or agreement.step != standing.committed_step:
        return False
    learners = {learner.seat.member.replica_id for learner in standing.learners}
    return learners.issuperset(agreement.holders)


def announcement_of(
    formation: Formation, roster: Roster, *, epoch: Epoch, attempts: Mapping[str, int]
) -> Announcement:
    """Return the announcement of a quorum.

    Args:
        formation: Who is in it and where they stand.
        roster: Where the seats are.
        epoch: Its epoch.
        attempts: How often each learner has failed to learn, by replica.
    """
    learners = (*_learners(formation, roster, attempts, epoch=epoch), *formation.carried)
    return Announcement(
        epoch=epoch,
        members=_seats(formation.members, roster),
        learners=learners,
        committed_step=formation.step,
        outcome=formation.outcome,
        reason=formation.reason,
        start=formation.start,
        hold=any(each.trail is None for each in learners) and not formation.finished,
        finished=formation.finished,
        lineage_term=formation.lineage or epoch.term,
    )


def outsiders(roster: Roster, members: Sequence[Incarnation]) -> list[Incarnation]:
    """Return the others who ask: of a finished run they are told as well."""
    asking = {incarnation_of(process.seat.member) for process in roster.joined()}
    return sorted(asking.difference(members))


def _seats(of: Sequence[Incarnation], roster: Roster) -> tuple[Seat, ...]:
    return tuple(seat for incarnation in sorted(of) for seat in roster.seats(incarnation))


def _learners(
    formation: Formation, roster: Roster, attempts: Mapping[str, int], *, epoch: Epoch
) -> tuple[Learner, ...]:
    """Give every rank of every learner its donors: the same rank of the members."""
    donors = {
        (seat.member.replica_id, seat.member.rank): seat
        for seat in _seats(formation.members, roster)
    }
    waiting = [replica_id for replica_id, _ in formation.learners]
    learners = []
    for seat in _seats(formation.learners, roster):
        rank = seat.member.rank
        trails = incarnation_of(seat.member) in formation.trailing
        names = [name for name, _ in (formation.lenders if trails else formation.members)]
        plan = plan_healing(names, waiting, rank=rank, attempts=attempts)
        order = () if formation.finished else plan[seat.member.replica_id]
        found = tuple(donors[name, rank] for name in order if (name, rank) in donors)
        learners.append(Learner(seat, found, Trail(epoch, formation.step) if trails else None))
    return tuple(learners)
