"""What a member process holds between steps, and from one name to the next: a committed state.

Owns the values; ``ft.step`` decides when they change.
"""

from __future__ import annotations

import msgspec

from danaus.ft.step_events import Learn, Serve
from danaus.quorum.messages import Announcement, Epoch, Learner, QuorumRecord


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


class Past(msgspec.Struct, frozen=True):
    """What a process keeps of a name that it gave up (H-3).

    ``quorum`` is the last that it was announced in under that name, ``seen_epoch`` the newest that
    it was told of.
    """

    state: State
    quorum: QuorumRecord | None = None
    seen_epoch: Epoch | None = None


def learn_order(told: Announcement, learner: Learner, state: State) -> Learn:
    """Return what a learner that holds ``state`` is to do about an announcement.

    A state that is no further than the one that is to be learned may lead on to it: whether the
    donors keep the gradients in between is theirs to say.  One that is further has trailed.
    """
    step = learner.trail.step if learner.trail is not None else told.committed_step
    leads_on = bool(state.fingerprint) and state.lineage_term == told.lineage_term
    has_trailed = state.caught_up and learner.trail is not None
    if leads_on and (state.step <= step or has_trailed):
        return Learn(told.epoch, step, learner, told.lineage_term, state.step, state.epoch)
    return Learn(told.epoch, step, learner, told.lineage_term)


def serve_order(epoch: Epoch, pupils: tuple[Learner, ...], state: State) -> Serve:
    """Return what a member that holds ``state`` is to do for learners."""
    return Serve(epoch, state.step, pupils, state.epoch, state.fingerprint, state.lineage_term)
