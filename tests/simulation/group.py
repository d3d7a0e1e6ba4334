"""A simulated member's end of the group: contributions, votes, and everything that breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.engine import Link, Violation
from tests.simulation.meeting import Meeting, MeetingMember
from tests.simulation.model import Kept, Model, mixed

from danaus.ft.course import lent_steps
from danaus.ft.step_events import (
    Ballot,
    CastVote,
    Compute,
    Computed,
    ComputeFailed,
    Event,
    FormGroup,
    Reduce,
    Reduced,
    ReductionBroken,
    VotesBroken,
    VotesIn,
)
from danaus.quorum.messages import Announcement, Epoch, MemberId

EXCHANGE_LIMIT_S = 4.0


@dataclass
class Group:
    """A member's end of the group of one epoch."""

    announcement: Announcement
    members: tuple[MemberId, ...]
    contributions: dict[int, dict[MemberId, tuple[int, ...]]] = field(default_factory=dict)
    ballots: dict[int, dict[MemberId, Ballot]] = field(default_factory=dict)
    lost: set[MemberId] = field(default_factory=set)
    waiting: tuple[str, int] = ("", 0)  # "reduce" or "vote", and the step
    meeting: Meeting | None = None  # until all have met


class GroupMember(MeetingMember):
    """The part of a member process that speaks with its peers.

    Connections are in order and may be late; they end when either side leaves the group or dies.
    Ballots that complete a vote after the group was left are handed to the machine all the same.
    """

    machine: Any
    model: Model
    failing = refusing = missumming = wedged = False

    def __init__(self, world: Any, who: MemberId, host: str) -> None:
        super().__init__(world.engine, str(who), host)
        self.world = world
        self.who = who
        self.group: Group | None = None
        self.kept: Kept | None = None
        self.left: dict[Epoch, Group] = {}  # groups that were left; ballots still trickle in
        self.entered: Epoch | None = None  # the newest epoch whose group was formed
        self.early: dict[Epoch, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        self.links: dict[MemberId, Link] = {}
        self.snapshots: dict[int, tuple[Model, Epoch | None]] = {}
        self.log: Any = None
        self.prefetched: Any = None

    def feed(self, event: Event) -> None:
        raise NotImplementedError

    def happens(self, moment: str) -> bool:
        """Let faults strike; tell whether this process can go on at once."""
        self.engine.moment(moment, self)
        return self.alive

    @property
    def vanished(self) -> bool:
        """Whether its host is gone with it, so that nobody is told by a closed connection."""
        return self.host in self.world.lost_hosts

    def leave_group(self) -> None:
        group, self.group = self.group, None
        if group:
            self.end_meeting(group)
            self.left[group.announcement.epoch] = group
            for peer in group.members:
                if peer != self.who:
                    self.to_peer(peer, group.announcement.epoch, "gone")

    def reset_links(self) -> None:
        """Lose what is on its way to the peers: a reset, a host that is gone."""
        for link in self.links.values():
            link.cut = True
        self.links = {}

    def to_peer(self, peer: MemberId, epoch: Epoch, what: str, *rest: Any) -> None:
        target = self.world.processes.get(peer)
        if target is None:
            return
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = Link(self.engine, self.host, target.host)
        link.send(target.run, target.from_peer, self.who, epoch, what, *rest)

    def from_peer(self, peer: MemberId, epoch: Epoch, what: str, *rest: Any) -> None:
        group = self.group
        if group and group.announcement.epoch == epoch:
            getattr(self, "peer_" + what)(group, peer, *rest)
        elif self.entered is None or epoch > self.entered:
            self.early.setdefault(epoch, []).append((self.from_peer, (peer, epoch, what, *rest)))
        elif what != "gone":
            self.to_peer(peer, epoch, "gone")
            if what == "votes" and epoch in self.left:
                self.late_ballot(self.left[epoch], peer, *rest)

    def late_ballot(self, group: Group, peer: MemberId, ballot: Ballot) -> None:
        """Hand a vote that is complete to the machine though the group was left: too late."""
        ballots = group.ballots.setdefault(ballot.step, {})
        ballots[peer] = ballot
        if len(ballots) == len(group.members):
            self.feed(VotesIn(group.announcement.epoch, ballot.step, dict(ballots)))

    def do_FormGroup(self, order: FormGroup) -> None:  # noqa: N802
        told = order.announcement
        self.group = Group(told, told.record().members)
        self.entered = told.epoch
        lent = lent_steps(told, self.who)
        self.snapshots = {step: self.snapshots[step] for step in self.snapshots if step in lent}
        self.log = self.log if lent or told.repairs else None
        self.prefetched = None
        self.world.monitor.forming(self, told)
        if not self.happens("forming"):
            return
        self.meet(told)
        for act, args in self.early.pop(told.epoch, []):
            self.run(act, *args)
        self.early = {epoch: held for epoch, held in self.early.items() if epoch > told.epoch}

    def do_Compute(self, order: Compute) -> None:  # noqa: N802
        self.world.monitor.computing(self, order.step, order.epoch)
        if self.group and self.group.meeting:
            self.group.meeting.then = order
        else:
            self.compute(order)

    def compute(self, order: Compute) -> None:
        if not self.happens("computing"):
            return
        if self.failing:
            self.failing = False
            self.later(0.05, self.feed, ComputeFailed(order.epoch, order.step, "out of memory"))
        elif not self.wedged:
            done = Computed(order.epoch, order.step)
            self.later(self.engine.random.uniform(0.05, 0.2), self.computed, done)

    def computed(self, event: Computed) -> None:
        if self.happens("computed"):
            self.feed(event)

    def do_Reduce(self, order: Reduce) -> None:  # noqa: N802
        group = self.group
        if group is None:
            raise Violation("T-1", f"{self.name} reduces without a group")
        mine = self.world.leaves_of(group.announcement, self.who)
        for peer in group.members:
            if peer != self.who:
                self.to_peer(peer, order.epoch, "contributes", order.step, mine)
                if not self.happens("contribution sent"):
                    return
        group.contributions.setdefault(order.step, {})[self.who] = mine
        self.wait(group, "reduce", order.step)
        self.happens("reducing")

    def wait(self, group: Group, what: str, step: int) -> None:
        group.waiting = (what, step)
        self.later(EXCHANGE_LIMIT_S, self.overdue, group, what, step)
        self.later(0.0, self.look, group)

    def overdue(self, group: Group, what: str, step: int) -> None:
        if self.group is group and group.waiting == (what, step):
            self.broken("the exchange's deadline passed")

    def peer_contributes(
        self, group: Group, peer: MemberId, step: int, leaves: tuple[int, ...]
    ) -> None:
        group.contributions.setdefault(step, {})[peer] = leaves
        self.look(group)

    def peer_votes(self, group: Group, peer: MemberId, ballot: Ballot) -> None:
        group.ballots.setdefault(ballot.step, {})[peer] = ballot
        if self.happens("ballot came"):
            self.run(self.look, group)

    def peer_gone(self, group: Group, peer: MemberId) -> None:
        if group.meeting:
            if self.hears_end(group.meeting, peer):
                self.cannot_meet(f"lost {peer}")
            return
        group.lost.add(peer)
        # A lost peer may be noticed though all that it had to say has come.
        if group.waiting[0] and self.engine.random.random() < 0.3:
            self.broken(f"lost {peer}")
        else:
            self.look(group)

    def look(self, group: Group) -> None:
        """See whether what is waited for is here, or cannot come any more."""
        what, step = group.waiting
        if self.group is not group or not what:
            return
        come = (group.contributions if what == "reduce" else group.ballots).get(step, {})
        if len(come) == len(group.members):
            group.waiting = ("", 0)
            self.later(0.001, self.reduced if what == "reduce" else self.counted, group, step)
        elif any(peer not in come for peer in group.lost):
            self.broken("lost " + ", ".join(str(p) for p in sorted(group.lost) if p not in come))

    def broken(self, reason: str) -> None:
        group = self.group
        if group is None:
            return
        if group.meeting:
            self.cannot_meet(reason)
            return
        (what, step), group.waiting = group.waiting, ("", 0)
        epoch = group.announcement.epoch
        if what == "reduce":
            self.feed(ReductionBroken(epoch, step, reason))
        elif what == "vote":
            self.count(VotesBroken(epoch, step, reason, dict(group.ballots.get(step, {}))))

    def reduced(self, group: Group, step: int) -> None:
        epoch = group.announcement.epoch
        come = group.contributions[step]
        leaves = tuple(
            sorted(
                leaf for peer, part in come.items() if peer.rank == self.who.rank for leaf in part
            )
        )
        nonce = None if self.world.plan.exact else epoch
        digest = mixed(step, self.who.rank, leaves, nonce)
        if self.missumming:
            self.missumming = False
            digest = mixed(digest, self.name)
        if self.group is group:
            self.kept = Kept(step, epoch, digest, leaves)
        if not self.happens("reduced"):
            return
        refusal = "it does not like the step" if self.refusing else ""
        self.refusing = False
        self.run(self.feed, Reduced(epoch, step, digest, self.model.fingerprint, refusal))

    def do_CastVote(self, order: CastVote) -> None:  # noqa: N802
        group, ballot = self.group, order.ballot
        if group is None:
            raise Violation("T-1", f"{self.name} votes without a group")
        self.world.monitor.voting(self, ballot)
        group.ballots.setdefault(ballot.step, {})[self.who] = ballot
        for peer in group.members:
            if peer != self.who:
                self.to_peer(peer, ballot.epoch, "votes", ballot)
                if not self.happens("ballot sent"):
                    return
        self.wait(group, "vote", ballot.step)
        self.happens("voted")

    def counted(self, group: Group, step: int) -> None:
        if self.happens("counted"):
            votes = dict(group.ballots[step])
            self.run(self.count, VotesIn(group.announcement.epoch, step, votes))

    def count(self, event: VotesIn | VotesBroken) -> None:
        if isinstance(event, VotesIn):
            self.world.checkpoints.voted(self, event.step, event.votes)
        self.feed(event)
