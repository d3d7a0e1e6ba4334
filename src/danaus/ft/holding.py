"""What a member process holds between steps: a committed state.

Owns the value; ``ft.step`` decides when it changes.
"""

from __future__ import annotations

import msgspec

from danaus.ft.step_events import Learn, Serve
from danaus.quorum.messages import Announcement, Epoch, Learner


class State(msgspec.Struct, frozen=True):
    """The committed state this process holds; ``fingerprint`` is empty where it is spoiled.

    ``caught_up``: it was learned while the members went on, and nothing was done with it since.
    """

    step: int
    fingerprint: str
    epoch: Epoch | None = None
    lineage_term: int = 0
    caught_up: bool = False


SPOILED = State(0, "")


def learn_order(told: Announcement, learner: Learner, state: State) -> Learn:
    """Return what a learner that holds ``state`` is to do about an announcement."""
    step = learner.trail.step if learner.trail is not None else told.committed_step
    leads_on = (
        state.caught_up and bool(state.fingerprint) and state.lineage_term == told.lineage_term
    )
    # Gradients that lead up to the beginning of a trail are kept by nobody.
    reaches = leads_on and (state.step <= step if learner.trail is None else state.step >= step)
    held_step = state.step if reaches else None
    return Learn(told.epoch, step, learner, told.lineage_term, held_step)


def serve_order(epoch: Epoch, pupils: tuple[Learner, ...], state: State) -> Serve:
    """Return what a member that holds ``state`` is to do for learners."""
    return Serve(epoch, state.step, pupils, state.epoch, state.fingerprint, state.lineage_term)
