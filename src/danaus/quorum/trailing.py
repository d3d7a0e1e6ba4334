"""Learners that catch up while the members go on (H-1).

Owns who may trail and who is waited for because that is quicker, who is listed on though it has not
asked yet, and who is waited for once the run's last step is taken.  Functions of the quorum
machine: pure, on its ``Situation``.

Trailing costs the members nothing but time in which they are one fewer: the learner is counted a
whole step later than if they had stood still for it.  Where its lesson takes less than the step is
shortened by once it takes part, standing still is the shorter way for all.

A learner trails once.  When it asks again it has caught up, or it has failed; in both cases the
members wait for it at a boundary then, so that each learner comes to its end.

Invariants:
    H-1: a learner that trails holds up nobody, whatever becomes of it.  One that could trail is
    waited for no longer than a step takes; if it is not there by then, it trails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from danaus.quorum.agreement import Agreement
from danaus.quorum.messages import Learner
from danaus.quorum.roster import Incarnation, incarnation_of
from danaus.quorum.situation import Situation

ASSUMED_BYTES_PER_S = 100e6
"""How fast a state is fetched, for as long as none was."""
ROUND_S = 0.02
"""What the asks and answers around a lesson take."""


@dataclass(frozen=True, slots=True)
class Schooling:
    """How learners come to the members' state.

    ``lenders`` serve those in ``trailing``, beside which the members go on; those in ``brief``
    could trail, and the members wait for them for ``limit_s`` at most, for ``reason``.
    """

    lenders: Sequence[Incarnation] = ()
    trailing: Sequence[Incarnation] = ()
    brief: Sequence[Incarnation] = ()
    limit_s: float = 0.0
    reason: str = ""


def caught_up(s: Situation, of: Incarnation, lineage: int) -> bool:
    """Tell whether an asker needs only a few gradients to stand where the members stand."""
    reports = s.roster.reports(of)
    return bool(reports) and all(
        report.caught_up and report.fingerprint and report.lineage_term == lineage
        for report in reports
    )


def lenders(s: Situation, members: Iterable[Incarnation]) -> list[Incarnation]:
    """Return the members each rank of which can serve a learner while it goes on."""
    return [of for of in members if all(report.lends for report in s.roster.reports(of))]


def school(
    s: Situation,
    learners: Iterable[Incarnation],
    agreement: Agreement,
    *,
    members: Sequence[Incarnation],
) -> Schooling:
    """Return which learners the members go on beside, and which they wait for all the same.

    Args:
        s: What is known.
        learners: Those who ask and are behind.
        agreement: Which state the members hold.
        members: Those who do.
    """
    # Before the first step there is nothing to go on from: all begin together (T-6).
    if len(members) < s.settings.min_replicas or agreement.step <= 0 or is_done(s, members):
        return Schooling()
    lending = lenders(s, members)
    if not lending:
        return Schooling()
    could = [
        of for of in learners if not s.lessons.count(of) and not caught_up(s, of, agreement.lineage)
    ]
    known = [r.step_s for of in members for r in s.roster.reports(of) if r.step_s]
    step_s = min(known, default=0.0)
    lesson_s = max((_lesson_s(s, of) for of in members), default=0.0)
    gain_s = step_s / (len(members) + 1)
    if not lesson_s or lesson_s >= s.settings.hold_share * gain_s:
        return Schooling(lending, could)
    brief = [of for of in could if of not in s.lessons.late]
    trailing = [of for of in could if of in s.lessons.late]
    reason = (
        f"waiting for the {lesson_s:.2g} s that this takes, which is less than the {gain_s:.2g} s "
        "by which one more makes a step shorter"
    )
    return Schooling(lending, trailing, brief, step_s, reason if brief else "")


def _lesson_s(s: Situation, of: Incarnation) -> float:
    """Return how long it will take to learn a member's state; 0: nothing is known of that."""
    reports = s.roster.reports(of)
    fetched_s = s.lessons.took_s or max((report.lesson_s for report in reports), default=0.0)
    if not fetched_s:
        num_bytes = max((report.state_bytes for report in reports), default=0)
        fetched_s = num_bytes / ASSUMED_BYTES_PER_S
    return fetched_s + ROUND_S if fetched_s else 0.0


def carried(
    s: Situation, members: Sequence[Incarnation], agreement: Agreement
) -> tuple[Learner, ...]:
    """Return the learners that trail on in the next epoch, with the donors that are left.

    One of which a rank is left without donors is not among them: it asks again.
    """
    if s.standing is None or agreement.lineage != s.standing.lineage_term:
        return ()
    inside = set(members)
    listed = [
        msgspec.structs.replace(
            each, donors=tuple(d for d in each.donors if incarnation_of(d.member) in inside)
        )
        for each in s.trailing()
        if incarnation_of(each.seat.member) in late(s)
    ]
    stranded = {incarnation_of(each.seat.member) for each in listed if not each.donors}
    return tuple(each for each in listed if incarnation_of(each.seat.member) not in stranded)


def late(s: Situation) -> set[Incarnation]:
    """Return the learners that trail and may still ask."""
    return {
        of
        for each in s.trailing()
        if not s.roster.has_joined(of := incarnation_of(each.seat.member))
        and not s.roster.loss(of)
        and not s.roster.shut_out.get(of)
        and of not in s.roster.departing
        and s.roster.is_newest(of)
    }


def last_call(s: Situation, members: Iterable[Incarnation]) -> str:
    """Return whom those wait for who have taken the run's last step; empty: nobody."""
    waited = late(s)
    if not waited or not is_done(s, members):
        return ""
    if not s.episode.last_call:
        s.episode.last_call = s.now + s.settings.hold_limit_s
    if s.now >= s.episode.last_call:
        return ""
    names = ", ".join(sorted({replica_id for replica_id, _ in waited}))
    return f"{names} learns; waiting for it with the last step taken"


def is_done(s: Situation, members: Iterable[Incarnation]) -> bool:
    """Tell whether all have taken the run's last step."""
    reports = [report for of in members for report in s.roster.reports(of)]
    return bool(reports) and all(report.done for report in reports)
