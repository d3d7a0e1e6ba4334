"""Learners that catch up while the members go on (H-1).

Owns who may trail, who is listed on though it has not asked yet, and who is waited for once the
run's last step is taken.  Functions of the quorum machine: pure, on its ``Situation``.

A learner trails once.  When it asks again it has caught up, or it has failed; in both cases the
members wait for it at a boundary then, so that each learner comes to its end.

Invariants:
    H-1: a learner that trails holds up nobody, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from danaus.quorum.agreement import Agreement
from danaus.quorum.messages import Learner
from danaus.quorum.roster import Incarnation, incarnation_of
from danaus.quorum.situation import Situation


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


def may_trail(
    s: Situation, learners: Iterable[Incarnation], agreement: Agreement, *, num_members: int
) -> list[Incarnation]:
    """Return the learners that the members need not wait for.

    Args:
        s: What is known.
        learners: Those who ask and are behind.
        agreement: Which state the members hold.
        num_members: How many replicas do.
    """
    # Before the first step there is nothing to go on from: all begin together (T-6).
    if num_members < s.settings.min_replicas or agreement.step <= 0:
        return []
    return [
        of for of in learners if not s.lessons.count(of) and not caught_up(s, of, agreement.lineage)
    ]


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
