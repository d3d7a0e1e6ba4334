"""Whether a checkpoint may be believed: once a vote has shown whose state it was written of."""

from __future__ import annotations

from danaus.ft.observer import Observer
from danaus.ft.place import Place
from danaus.ft.step_events import CheckpointWritten, Votes
from danaus.ft.work import Work


def settle_checkpoint(
    step: int, votes: Votes, me: Place, *, work: Work, told: Observer
) -> CheckpointWritten | None:
    """See whether a checkpoint is of the state that all members turn out to share (Q-9).

    It may be restored then; one that was written of a flipped bit must not stay.

    Args:
        step: Of the checkpoint.
        votes: On the step after it.
        me: This process.
        work: What is trained.
        told: Of a checkpoint that is dropped.
    """
    written = work.checkpointed(step)
    if not written:
        return None
    shared = {vote.fingerprint for member, vote in votes.items() if member.rank == me.rank}
    if shared == {written}:
        return CheckpointWritten(step, written)
    if len(shared) == 1:
        work.drop_checkpoint(step)
        reason = f"written of a state with fingerprint {written}, all members have {min(shared)}"
        told.checkpoint_dropped(step, reason)
    return None
