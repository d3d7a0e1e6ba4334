"""What an announcement asks of one member process.

Owns the reading of an announcement against what a member holds, as a pure function; ``ft.step``
carries the course out.

Invariants:
    T-1: a kept gradient is applied only by a member whose announcement says ``commit`` of that
    very step.  A learner never applies one: its step may be another attempt's.
    Q-2: an announcement counts whole replicas, each rank of each once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from danaus.core.errors import InternalError
from danaus.quorum.messages import Announcement, Learner, MemberId, StepReport
from danaus.quorum.resolve import follows, settled_step

Todo = Literal["nothing", "finish", "restore", "apply", "stand", "learn", "wait"]


class Course(msgspec.Struct, frozen=True):
    """What to do about an announcement.

    ``nothing``: it does not list this process.  ``stand``: go on from the state held.  ``wait``:
    a learner that nobody can teach yet.  All but ``nothing`` and ``apply`` discard an open step,
    for ``reason``.
    """

    todo: Todo
    reason: str
    learner: Learner | None = None


def read_course(
    told: Announcement, member: MemberId, report: StepReport, *, num_ranks: int
) -> Course:
    """Return what ``told`` asks of ``member``, which holds what it reports.

    Raises:
        InternalError: It counts replicas that are not whole (Q-2), or contradicts what the
            member holds (T-1).
    """
    learner = learner_in(told, member)
    counted = any(seat.member == member for seat in told.members)
    if learner is None and not counted:
        return Course("nothing", "not listed")
    if told.finished:
        return Course("finish", told.reason, learner)
    if learner is not None:
        reason = "this process learns its state from its peers"
        return Course("learn" if learner.donors else "wait", reason, learner)
    _check_whole(told, num_ranks)
    if told.start == "restore":
        return Course("restore", told.reason)
    if not report.fingerprint or settled_step(report, told.outcome) != told.committed_step:
        raise _contradiction(told, member, report)
    return Course("apply" if follows(report, told.outcome) else "stand", told.outcome.reason)


def learner_in(told: Announcement, member: MemberId) -> Learner | None:
    """Return what an announcement says of a member that learns; None: it does not."""
    return next((one for one in told.learners if one.seat.member == member), None)


def pupils_of(told: Announcement, member: MemberId) -> tuple[Learner, ...]:
    """Return the learners that ``member`` begins to serve where it follows ``told``."""
    return tuple(
        learner
        for learner in told.learners
        if (learner.trail is None or learner.trail.epoch == told.epoch)
        and any(donor.member == member for donor in learner.donors)
    )


def lent_steps(told: Announcement, member: MemberId) -> frozenset[int]:
    """Return the steps whose states ``member`` goes on serving in ``told``'s epoch.

    And with them the gradients of every step that came after.
    """
    return frozenset(
        learner.trail.step
        for learner in told.learners
        if learner.trail is not None and any(donor.member == member for donor in learner.donors)
    )


def _check_whole(told: Announcement, num_ranks: int) -> None:
    places = {(seat.member.replica_id, seat.member.rank) for seat in told.members}
    whole = len(told.replica_ids) * num_ranks
    if len(told.members) != whole or len(places) != whole:
        raise InternalError("Q-2", f"quorum {told.epoch} counts replicas that are not whole")


def _contradiction(told: Announcement, member: MemberId, report: StepReport) -> InternalError:
    left = report.open_step
    kept = f" and step {left.step} of {left.epoch}, {left.vote}" if left else ""
    return InternalError(
        "T-1",
        f"quorum {told.epoch} stands at step {told.committed_step} "
        f"({told.outcome.verdict} of step {told.outcome.step}), {member} holds "
        f"state {report.committed_step} {report.fingerprint or '(spoiled)'}{kept}",
    )
