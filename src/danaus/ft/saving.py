"""What members tell each other of checkpoints on their votes, and what follows from it (H-5, Q-9).

Pure.  A checkpoint is of one step at all ranks of one replica, so all of them must come to the
same decision: they take it from the ballots of that step, which are the same at every member.
Where not all ballots came, each goes by what it knows; one that is not written everywhere is
never complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from danaus.quorum.messages import MemberId

MOST_COST = 0.01
"""Share of the time that checkpoints may keep the training thread."""

Decision = Literal["no", "save", "skip"]
Verdict = Literal["open", "agreed", "wrong"]


class SaveNote(msgspec.Struct, frozen=True):
    """What one member says of checkpoints with its vote.

    ``idle_s``: since it last knew one to be due, in seconds.  ``cost_s``: how long the last one
    kept its training thread.  ``busy``: it still writes one.  ``complete``: the newest that it
    knows to be on the disk, whole and of the state that all members shared.
    """

    idle_s: float = 0.0
    cost_s: float = 0.0
    busy: bool = False
    complete: int = 0


@dataclass(frozen=True, slots=True)
class SavePlan:
    """When a checkpoint is due; neither steps nor seconds: never.

    Args:
        every_steps: Steps from one to the next; 0: by time.
        every_s: Seconds from one to the next at least, longer where it would cost more than
            ``MOST_COST``.
        last_step: After which one is written whatever the time; 0: none.
    """

    every_steps: int = 0
    every_s: float = 0.0
    last_step: int = 0


def decide(plan: SavePlan, step: int, notes: Mapping[MemberId, SaveNote]) -> Decision:
    """Return whether the state after ``step`` is written.

    Args:
        plan: When one is due.
        step: The step that is voted on.
        notes: What its voters say; this member's alone where the others' are not known.

    Returns:
        ``skip``: it would be due, and a rank of the replica that writes is not done with the one
        before.
    """
    if not plan.every_steps and not plan.every_s:
        return "no"
    if step == plan.last_step:
        return "save"
    if plan.every_steps:
        due = step % plan.every_steps == 0
    else:
        cost_s = max(note.cost_s for note in notes.values())
        due = max(note.idle_s for note in notes.values()) >= max(plan.every_s, cost_s / MOST_COST)
    if not due:
        return "no"
    writer = min(member.replica_id for member in notes)
    busy = any(note.busy for member, note in notes.items() if member.replica_id == writer)
    return "skip" if busy else "save"


def verdict(written: str, seen: Collection[str]) -> Verdict:
    """Return what the votes of the next step say of a checkpoint.

    Args:
        written: Fingerprint of the state that it is written of.
        seen: Fingerprints that all members of this rank gave of that state.
    """
    if len(set(seen)) != 1:
        return "open"
    return "agreed" if written in seen else "wrong"
