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
from danaus.quorum.messages import Announcement, Epoch, Learner, MemberId, OpenStep

Todo = Literal["nothing", "finish", "restore", "apply", "stand", "learn", "wait"]


class State(msgspec.Struct, frozen=True):
    """The committed state a process holds; ``fingerprint`` is empty where it is spoiled."""

    step: int
    fingerprint: str
    epoch: Epoch | None = None


SPOILED = State(0, "")


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
    told: Announcement, member: MemberId, num_ranks: int, holds: tuple[State, OpenStep | None]
) -> Course:
    """Return what ``told`` asks of ``member``, which holds a state and maybe an open step.

    Raises:
        InternalError: It counts replicas that are not whole (Q-2), or contradicts what the
            member holds (T-1).
    """
    state, left = holds
    learner = next((one for one in told.learners if one.seat.member == member), None)
    counted = any(seat.member == member for seat in told.members)
    if learner is None and not counted:
        return Course("nothing", "not listed")
    if told.finished:
        return Course("finish", told.reason)
    if learner is not None:
        reason = "this process learns its state from its peers"
        return Course("learn" if learner.donors else "wait", reason, learner)
    _check_whole(told, num_ranks)
    if told.start == "restore":
        return Course("restore", told.reason)
    if left and told.outcome.verdict == "commit" and told.outcome.step == left.step:
        if left.vote != "prepared" or left.step != told.committed_step:
            raise _contradiction(told, member, f"step {left.step}, voted {left.vote}")
        return Course("apply", told.outcome.reason)
    if state.step != told.committed_step or not state.fingerprint:
        raise _contradiction(told, member, f"state {state.step} {state.fingerprint or 'spoiled'}")
    return Course("stand", told.outcome.reason)


def _check_whole(told: Announcement, num_ranks: int) -> None:
    places = {(seat.member.replica_id, seat.member.rank) for seat in told.members}
    whole = len(told.replica_ids) * num_ranks
    if len(told.members) != whole or len(places) != whole:
        raise InternalError("Q-2", f"quorum {told.epoch} counts replicas that are not whole")


def _contradiction(told: Announcement, member: MemberId, holds: str) -> InternalError:
    return InternalError(
        "T-1",
        f"quorum {told.epoch} stands at step {told.committed_step} "
        f"({told.outcome.verdict} of step {told.outcome.step}), {member} holds {holds}",
    )
