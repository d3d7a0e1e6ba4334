"""What replicas and the quorum service say to each other, and the values they speak of.

Owns the wire structs of the quorum room; ``quorum.state`` decides with them, ``quorum.service``
and ``quorum.client`` carry them, ``ft.step`` acts on them.

One member is one process under one name: ``(replica_id, rank, incarnation)``.  A replica is one or
more ranks; it takes part when every rank of one incarnation does, and that incarnation is lost with
the first of them.  A process that outlives a sibling gives its name up and goes on under that of
the replica's next incarnation (H-3).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Vote = Literal["none", "prepared", "refused"]
Verdict = Literal["commit", "discard", "none"]
Start = Literal["live", "restore"]


class Epoch(msgspec.Struct, frozen=True, order=True, array_like=True):
    """``(term, n)``; epochs only grow (Q-1)."""

    term: int
    n: int

    def __str__(self) -> str:
        return f"{self.term}.{self.n}"


class MemberId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One process of one replica."""

    replica_id: str
    rank: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.replica_id}/{self.rank}#{self.incarnation}"


class Seat(msgspec.Struct, frozen=True):
    """Where one member process is reached: ``data_address`` by its peers, ``agent_address`` by
    those who watch or fence it (``process_id`` names it there).

    ``rejoins``: its process can outlive a sibling.  ``formerly``: names that it has given up; no
    vote and no report comes under them any more, which is as good as their death (H-3).
    """

    member: MemberId
    num_ranks: int
    data_address: str
    agent_address: str = ""
    process_id: str = ""
    rejoins: bool = False
    formerly: tuple[MemberId, ...] = ()


class QuorumRecord(msgspec.Struct, frozen=True):
    """A quorum as those who were told of it remember it: its epoch and every member process.

    ``seats`` are those of the members whose host agents can be asked what became of them.
    """

    epoch: Epoch
    members: tuple[MemberId, ...]
    seats: tuple[Seat, ...] = ()


class OpenStep(msgspec.Struct, frozen=True):
    """The step a member has begun and neither committed nor discarded (T-1).

    ``digest`` is that of the reduced gradient (empty unless ``vote`` is ``prepared``);
    ``refused_seen`` tells that some member's refusal of this step is known.
    """

    step: int
    epoch: Epoch
    vote: Vote
    digest: str = ""
    refused_seen: bool = False
    reason: str = ""


class StepReport(msgspec.Struct, frozen=True):
    """What a member says of itself when it joins.  Joining promises no vote in an older epoch.

    ``committed_step`` counts applied steps (0: the initial weights); ``committed_epoch`` is the
    epoch in which it was voted on (None: initial weights or a restored checkpoint).
    ``lineage_term`` is the term of the restore that the state descends from, as the last
    announcement that was followed named it (0: none was); it tells a state that was rolled back
    from one that was not.  ``fingerprint`` is of the state after ``committed_step``; empty: the
    state is spoiled and counts for nothing.
    ``last_quorum`` is the last quorum this incarnation was announced in.
    ``seen_epoch`` is the newest epoch announced to it, followed or not: it follows none up to it.
    ``restorable_step`` is the newest checkpoint this process could restore (0: the seed) whose
    fingerprint was agreed on by a later vote.
    ``unreached`` are those of ``last_quorum`` whose machines could not be dialled when its group
    was to be formed.
    ``lends``: it has room to keep a state, and the gradients of steps after it, for learners while
    it goes on, and a step can be applied again elsewhere.
    ``caught_up``: the state was learned while the members went on, and is a few steps behind at
    most (H-1).
    ``step_s`` is what a step took here lately, ``lesson_s`` what it took this process to fetch a
    whole state last, ``state_bytes`` the size of its own; 0: not known.
    """

    committed_step: int
    fingerprint: str
    committed_epoch: Epoch | None = None
    last_quorum: QuorumRecord | None = None
    open_step: OpenStep | None = None
    seen_term: int = 0
    seen_epoch: Epoch | None = None
    restorable_step: int = 0
    done: bool = False
    lineage_term: int = 0
    unreached: tuple[MemberId, ...] = ()
    lends: bool = False
    caught_up: bool = False
    step_s: float = 0.0
    lesson_s: float = 0.0
    state_bytes: int = 0


class Trail(msgspec.Struct, frozen=True):
    """Where a learner begins for which nobody waits: at the state of ``step``.

    Its donors keep that state, and the gradients of all steps after it, since they followed
    ``epoch``.
    """

    epoch: Epoch
    step: int


class Learner(msgspec.Struct, frozen=True):
    """A process that is announced but not counted (H-1), and its donors, the first first.

    ``trail``, if any: the members go on, and it catches up with them and asks again then.  It
    stays listed in later epochs, so that its donors go on keeping what it needs, and is not told
    of them.
    """

    seat: Seat
    donors: tuple[Seat, ...]
    trail: Trail | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What becomes of the open step.  ``step`` 0 with verdict ``none``: there was none.

    ``epoch`` is the one in which the step was voted on: a reduced gradient that was kept from
    another epoch is another attempt and is never applied (None: not known, not checked).
    """

    step: int
    verdict: Verdict
    reason: str
    epoch: Epoch | None = None


class Announcement(msgspec.Struct, frozen=True, tag="announcement"):
    """A quorum, as every member and learner is told of it: the same to each (Q-2).

    ``committed_step`` is where its members stand once they have followed ``outcome`` (and, with
    ``start == "restore"``, restored that very step).  ``hold``: members wait at this boundary
    for the learners without a trail and take no step in this epoch.  ``finished``: every member
    is done; others who asked are listed as learners without donors, so that they end as well.
    ``lineage_term`` is what each who follows reports from then on.
    ``repairs`` are replicas of which some ranks will be back with the state that they hold now: the
    members keep the gradients of the steps that they take from here on (H-3).
    """

    epoch: Epoch
    members: tuple[Seat, ...]
    learners: tuple[Learner, ...]
    committed_step: int
    outcome: Outcome
    reason: str
    start: Start = "live"
    hold: bool = False
    finished: bool = False
    lineage_term: int = 0
    repairs: tuple[str, ...] = ()

    @property
    def replica_ids(self) -> tuple[str, ...]:
        """The replicas that count, in order; a replica's index is its ``replica_rank``."""
        return tuple(sorted({seat.member.replica_id for seat in self.members}))

    def record(self) -> QuorumRecord:
        """Return what a member remembers of this quorum."""
        watched = tuple(seat for seat in self.members if seat.agent_address)
        return QuorumRecord(self.epoch, tuple(seat.member for seat in self.members), watched)


# -- replica -> service ---------------------------------------------------------------------


class Register(msgspec.Struct, frozen=True, tag="register"):
    """First words on each session: who speaks, where it is reached, what stands for it."""

    seat: Seat
    standing: QuorumRecord | None = None


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """I am alive; repeated every ``heartbeat_s``.  ``step``: applied so far, for people."""

    member: MemberId
    standing: Epoch | None = None
    step: int = 0


class Join(msgspec.Struct, frozen=True, tag="join"):
    """Ask for the next quorum.  ``number`` grows with each ask of this incarnation."""

    seat: Seat
    report: StepReport
    number: int
    shrink_only: bool = False


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Ask to be left out of the next quorum (drain); ``Released`` answers the next ask."""

    member: MemberId
    reason: str


class Renounce(msgspec.Struct, frozen=True, tag="renounce"):
    """This process gives its name up, having lost a sibling (H-3); its next seat says it again."""

    member: MemberId
    reason: str


class Finding(msgspec.Struct, frozen=True, tag="finding"):
    """What the votes tell the members about one of them; ``member`` says it for all.

    ``slow`` and ``not_slow``: it computes far more slowly than the others, or does not any more.
    ``miscomputes``: it computed a leaf otherwise than most that computed the same (T-8).
    """

    member: MemberId
    about: MemberId
    kind: Literal["slow", "not_slow", "miscomputes"]
    step: int
    reason: str


# -- service -> replica ---------------------------------------------------------------------


class ChangePending(msgspec.Struct, frozen=True, tag="change_pending"):
    """The membership is about to change; turn to the service after this step (Q-2)."""

    epoch: Epoch
    reason: str


class AbortExchange(msgspec.Struct, frozen=True, tag="abort_exchange"):
    """Members of ``epoch`` are dead; leave what you are blocked in (Q-5)."""

    epoch: Epoch
    dead: tuple[MemberId, ...]
    reason: str


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """No quorum yet, and why (Q-8)."""

    reason: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """No quorum, and waiting will not help; ``to_do`` says what will."""

    reason: str
    to_do: str
    diverged: dict[str, str] = {}
    step: int = 0


class NotLeading(msgspec.Struct, frozen=True, tag="not_leading"):
    """Another candidate leads, at ``holder``; empty: nobody is known to."""

    holder: str
    reason: str


class Released(msgspec.Struct, frozen=True, tag="released"):
    """Nobody counts on this process any more: it may end, as it was asked to.

    ``save``: nobody else holds the state; write it to the disk before that.
    """

    reason: str
    save: bool = False


FromReplica = Register | Heartbeat | Join | Leave | Renounce | Finding
FromService = (
    Announcement | ChangePending | AbortExchange | Waiting | Refused | Released | NotLeading
)
