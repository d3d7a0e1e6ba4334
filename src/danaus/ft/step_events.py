"""What a member's step machine hears and what it orders: events, instructions, and the ballot.

Owns the vocabulary between ``ft.step`` (which decides) and the shell of a member process (which
computes, exchanges and applies).  Events are past tense, instructions imperative.

Every event that answers work carries the epoch, and where it matters the step, of the
instruction that it answers; the machine drops what belongs to work it has left (T-1), so a shell
may deliver late results without checking.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from danaus.ft.audit import Audited
from danaus.ft.saving import SaveNote
from danaus.quorum.messages import (
    Announcement,
    Epoch,
    Learner,
    MemberId,
    Released,
    StepReport,
    Vote,
)


class Ballot(msgspec.Struct, frozen=True):
    """One member's one vote in (step, epoch), as every other member gets it (T-1).

    ``digest`` is that of the reduced gradient of this rank (empty unless prepared).
    ``fingerprint`` is of this rank's state after ``step - 1`` (Q-9).  ``change_pending`` names a
    coming change of the membership, or is empty (Q-2).  ``reason`` tells why a vote is refused;
    ``own_share``, that it is for what this member's replica computed.  ``pace_s`` is what this
    member took for a leaf, in seconds (0: it computed none).  ``audited`` are the leaves that are
    computed twice, as it computed them (T-8).  ``save`` tells of checkpoints (H-5).
    """

    member: MemberId
    epoch: Epoch
    step: int
    vote: Vote
    digest: str
    fingerprint: str
    change_pending: str = ""
    reason: str = ""
    own_share: bool = False
    pace_s: float = 0.0
    audited: tuple[Audited, ...] = ()
    save: SaveNote = SaveNote()


Votes = Mapping[MemberId, Ballot]


# -- events ---------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The process is built and may ask for its first quorum."""


class Announced(msgspec.Struct, frozen=True):
    """The quorum service announced a quorum that lists this process."""

    announcement: Announcement


class ChangeKnown(msgspec.Struct, frozen=True):
    """The service says that the membership of ``epoch`` is about to change (Q-2)."""

    epoch: Epoch
    reason: str


class Computed(msgspec.Struct, frozen=True):
    """This member's leaves of the step are computed."""

    epoch: Epoch
    step: int


class ComputeFailed(msgspec.Struct, frozen=True):
    """This member cannot compute its leaves; the step is refused."""

    epoch: Epoch
    step: int
    reason: str


class Reduced(msgspec.Struct, frozen=True):
    """The gradient is reduced and kept until it is applied or discarded.

    ``fingerprint``, if not empty, is of the state as it is now, taken just before the vote: with
    it a bit that flipped since the last step vetoes the gradient that it spoiled, instead of the
    one after (Q-9).  ``refusal``, if not empty, makes this member's vote a refusal; ``own_share``
    says that what this replica computed is to blame.
    """

    epoch: Epoch
    step: int
    digest: str
    fingerprint: str = ""
    refusal: str = ""
    own_share: bool = False


class ReductionBroken(msgspec.Struct, frozen=True):
    """The group could not be formed, or the reduction did not finish."""

    epoch: Epoch
    step: int
    reason: str


class VotesIn(msgspec.Struct, frozen=True):
    """Every member's ballot is here, this member's own included."""

    epoch: Epoch
    step: int
    votes: Votes


class VotesBroken(msgspec.Struct, frozen=True):
    """The exchange of votes ended before all were here; ``votes`` are those that came."""

    epoch: Epoch
    step: int
    reason: str
    votes: Votes


class Applied(msgspec.Struct, frozen=True):
    """The optimiser ran; ``fingerprint`` is of the state after ``step``."""

    step: int
    fingerprint: str


class Restored(msgspec.Struct, frozen=True):
    """The checkpoint of ``step`` is loaded (0: the seed's weights)."""

    epoch: Epoch
    step: int
    fingerprint: str


class RestoreFailed(msgspec.Struct, frozen=True):
    """The checkpoint cannot be loaded; ``restorable_step`` is the newest that may still be."""

    epoch: Epoch
    reason: str
    restorable_step: int


class Learned(msgspec.Struct, frozen=True):
    """The state of ``step`` is here; ``committed_epoch`` is the donors', where they tell.

    Of a learner with a trail it is the newest step to which the donors' gradients brought it.
    """

    epoch: Epoch
    step: int
    fingerprint: str
    committed_epoch: Epoch | None = None


class LearnFailed(msgspec.Struct, frozen=True):
    """No donor could serve; the state is spoiled unless one is ``held``, not overwritten."""

    epoch: Epoch
    reason: str
    held: Learned | None = None


class Aborted(msgspec.Struct, frozen=True):
    """The service ended ``epoch``: leave what you are in, a transfer too (Q-5).

    ``votes`` are the ballots that had come, where the exchange of votes was left; ``held`` the
    committed state that there is, where a lesson was.
    """

    epoch: Epoch
    reason: str
    votes: Votes = {}
    held: Learned | None = None


class CheckpointWritten(msgspec.Struct, frozen=True):
    """A member tells that the checkpoint of ``step`` is on the disk, whole, and of the state that
    all members shared (Q-9): from now on it is offered for restoring.  May be said again.
    """

    step: int


Event = (
    Started
    | Announced
    | Released
    | ChangeKnown
    | Computed
    | ComputeFailed
    | Reduced
    | ReductionBroken
    | VotesIn
    | VotesBroken
    | Applied
    | Restored
    | RestoreFailed
    | Learned
    | LearnFailed
    | Aborted
    | CheckpointWritten
)


# -- instructions ---------------------------------------------------------------------------


class JoinQuorum(msgspec.Struct, frozen=True):
    """Leave and close the group, then ask the service for the next quorum.

    The group's connections close at once, so that peers blocked on this member are released.
    After a lost session the shell asks again with ``StepMachine.report()``, under a new number,
    and from then on drops every announcement that comes over an older session: it answers an
    older ask, and the newer one has promised the service not to follow it.
    A kept reduced gradient stays kept until ``Apply`` or ``Discard``.
    """

    report: StepReport


class FormGroup(msgspec.Struct, frozen=True):
    """Form the group of the announcement's members; failing is ``ReductionBroken``.

    A snapshot served in an older epoch may be withdrawn unless ``ft.course.lent_steps`` names it;
    gradients need not be kept any more where it names none.
    """

    announcement: Announcement


class Compute(msgspec.Struct, frozen=True):
    """Compute this member's leaves of ``step``; ``attempt`` counts this process's tries from 1."""

    epoch: Epoch
    step: int
    attempt: int


class Reduce(msgspec.Struct, frozen=True):
    """Reduce the leaves with the group and keep the result."""

    epoch: Epoch
    step: int


class CastVote(msgspec.Struct, frozen=True):
    """Give every member this ballot and gather theirs.  Never ordered twice per (step, epoch)."""

    ballot: Ballot


class Apply(msgspec.Struct, frozen=True):
    """Run the optimiser with the kept gradient, in place; not finishing it is death.

    ``epoch`` is the one in which the step was voted (for the ledger).
    """

    step: int
    epoch: Epoch


class Discard(msgspec.Struct, frozen=True):
    """Drop the step's gradient; nothing of the step remains (T-2)."""

    step: int
    epoch: Epoch
    reason: str


class Restore(msgspec.Struct, frozen=True):
    """Load the checkpoint of ``step`` (0: the seed's weights) and note the rollback (T-7)."""

    epoch: Epoch
    step: int
    reason: str


class Learn(msgspec.Struct, frozen=True):
    """Fetch the state of ``step`` from the learner's donors (H-2).

    With a trail it is the state from which the trail begins: apply the gradients of the steps
    after it, until few or none are left.  ``held_step``, if any, is that of a state in memory
    from which the gradients after it may lead to ``step``.  There it is to be held against the
    donors' fingerprint; where it differs, or gradients cannot be had, all is fetched.
    """

    epoch: Epoch
    step: int
    learner: Learner
    lineage_term: int = 0
    held_step: int | None = None
    held_epoch: Epoch | None = None


class Serve(msgspec.Struct, frozen=True):
    """Offer an immutable snapshot of ``step``, the state as it is now, to these learners.

    For those with a trail it is offered while steps go on, and with it from here on the reduced
    gradient of each step that is applied, until ``FormGroup``, ``Restore`` or ``Learn`` end that.
    """

    epoch: Epoch
    step: int
    learners: tuple[Learner, ...]
    committed_epoch: Epoch | None
    fingerprint: str = ""
    lineage_term: int = 0


class Finish(msgspec.Struct, frozen=True):
    """The run is done: every member has committed its last step.

    Or it goes on without this process, which has ``left`` it, for that reason.  ``save``: the state
    of ``step``, committed in ``epoch``, is to be on the disk, and nobody else is to see to it.
    """

    step: int
    left: str = ""
    save: bool = False
    epoch: Epoch | None = None


Instruction = (
    JoinQuorum
    | FormGroup
    | Compute
    | Reduce
    | CastVote
    | Apply
    | Discard
    | Restore
    | Learn
    | Serve
    | Finish
)
