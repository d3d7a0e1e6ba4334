"""Which processes the service knows, and what that says of each replica.

Owns the bookkeeping per (replica, rank, incarnation): seats, heartbeats, outstanding joins,
deaths.  What it leaves: every decision (``quorum.decision``, ``quorum.state``).

A replica's incarnation is one incarnation of all its ranks: it has joined when each rank has a
join outstanding, and is lost with the first rank that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from danaus.quorum.agreement import NOWHERE, Place
from danaus.quorum.decision import ReplicaView
from danaus.quorum.messages import Join, MemberId, Outcome, Seat, StepReport
from danaus.quorum.resolve import settled_step

Incarnation = tuple[str, int]


def incarnation_of(member: MemberId) -> Incarnation:
    """Return which incarnation of which replica a process belongs to."""
    return member.replica_id, member.incarnation


@dataclass(slots=True)
class Process:
    """One process that has been heard of."""

    seat: Seat
    beat_at: float
    number: int = 0
    join: Join | None = None
    joined_at: float = 0.0
    answered_at: float | None = None
    fenced_at: float | None = None
    fence_reason: str = ""
    told: str = ""
    spared_at: float | None = None
    cut_at: float | None = None
    refused: bool = False


@dataclass(slots=True)
class Roster:
    """All processes of the run, living and dead.

    ``exited`` are those of the dead that came to their end by themselves, ``renounced`` those that
    are dead as names only: their process gave them up, and lives (H-3).
    ``shut_out`` names incarnations that are not asked any more, and why: a state that stays
    wrong.  ``leaving`` are those that were asked to leave, and why, ``departing`` those of them
    that may go.  ``pauses`` are those that may ask again at a moment, ``left_out`` those that do
    not reach the others, and why.
    """

    processes: dict[MemberId, Process] = field(default_factory=dict)
    dead: dict[MemberId, str] = field(default_factory=dict)
    exited: set[MemberId] = field(default_factory=set)
    renounced: set[MemberId] = field(default_factory=set)
    unreachable: dict[MemberId, str] = field(default_factory=dict)
    shut_out: dict[Incarnation, str] = field(default_factory=dict)
    leaving: dict[Incarnation, str] = field(default_factory=dict)
    departing: dict[Incarnation, str] = field(default_factory=dict)
    pauses: dict[Incarnation, float] = field(default_factory=dict)
    left_out: dict[Incarnation, str] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    _ranks: dict[Incarnation, dict[int, Process]] = field(default_factory=dict)

    # -- what is heard ------------------------------------------------------------------------

    def expect(self, seat: Seat, now: float) -> Process:
        """Return a process, taken up as alive at ``now`` where it was not known."""
        member = seat.member
        process = self.processes.get(member)
        if process is None:
            process = self.processes[member] = Process(seat, now)
            ranks = self._ranks.setdefault(incarnation_of(member), {})
            ranks[member.rank] = process
            newest = self.newest.get(member.replica_id, member.incarnation)
            self.newest[member.replica_id] = max(newest, member.incarnation)
        return process

    def seen(self, seat: Seat, now: float) -> Process:
        """Note that a process is alive and where it sits."""
        process = self.expect(seat, now)
        process.seat = seat
        process.beat_at, process.cut_at = max(process.beat_at, now), None
        return process

    def cut(self, process: Process, now: float, *, heard_at: float) -> None:
        """Note that a connection closed, and count its process as unheard since ``heard_at``."""
        process.cut_at, process.beat_at = now, min(process.beat_at, heard_at)

    def beat(self, member: MemberId, now: float) -> None:
        """Note a heartbeat."""
        process = self.processes.get(member)
        if process is not None:
            process.beat_at, process.cut_at = max(process.beat_at, now), None
            if process.join is not None and self.unreachable.pop(member, None) is not None:
                process.fenced_at = None

    def give_up(self, process: Process, reason: str) -> None:
        """Count a process that could not be fenced as out of reach.

        One that asks and has beaten since is neither hung nor out of reach.
        """
        asks = process.join is not None and process.fenced_at is not None
        if asks and process.beat_at > (process.fenced_at or 0.0):
            process.fenced_at = None
        else:
            self.unreachable[process.seat.member] = reason

    def ask(self, process: Process, join: Join, now: float) -> None:
        """Note an outstanding join; who asks is within reach again."""
        if self.unreachable.pop(join.seat.member, None) is not None:
            process.fenced_at = None
        if process.join is None:
            process.joined_at = now
        process.answered_at = None
        process.join = join

    def bury(self, member: MemberId, reason: str, now: float, *, clean: bool) -> None:
        """Note a confirmed death."""
        process = self.expect(Seat(member, 1, ""), now)
        process.join = None
        self.unreachable.pop(member, None)
        if member not in self.dead and clean:
            self.exited.add(member)
        self.dead.setdefault(member, reason)

    def leave_out(self, left_out: dict[Incarnation, str], now: float) -> None:
        """Note who does not reach the others; what they ask counts from when they may take part."""
        self.left_out = left_out
        for of in left_out:
            for process in self.ranks(of):
                process.joined_at = now

    def excuse(self, gap_s: float) -> None:
        """Count a time in which this service did not run as nobody's silence."""
        for process in self.processes.values():
            process.beat_at += gap_s
            process.joined_at += gap_s  # nor as anybody's delay: the others could not be heard
            if process.answered_at is not None:
                process.answered_at += gap_s
            if process.fenced_at is not None:
                process.fenced_at += gap_s
            if process.spared_at is not None:
                process.spared_at += gap_s

    # -- processes ----------------------------------------------------------------------------

    def lost(self, member: MemberId) -> bool:
        """Tell whether a process is dead or out of reach."""
        return member in self.dead or member in self.unreachable

    def joined(self) -> list[Process]:
        """Return the processes with a join outstanding, in order."""
        return [p for _, p in sorted(self.processes.items()) if p.join is not None]

    def report(self, member: MemberId) -> StepReport | None:
        """Return what an asking process reports."""
        process = self.processes.get(member)
        return process.join.report if process is not None and process.join is not None else None

    def reports(self, of: Incarnation) -> list[StepReport]:
        """Return what an incarnation's asking processes report, by rank."""
        return [process.join.report for process in self.ranks(of) if process.join is not None]

    def is_joined(self, member: MemberId) -> bool:
        """Tell whether a process has a join outstanding."""
        return self.report(member) is not None

    # -- replicas -----------------------------------------------------------------------------

    def ranks(self, of: Incarnation) -> list[Process]:
        """Return one incarnation's processes by rank."""
        return [process for _, process in sorted(self._ranks.get(of, {}).items())]

    def seats(self, of: Incarnation) -> tuple[Seat, ...]:
        """Return one incarnation's seats by rank."""
        return tuple(process.seat for process in self.ranks(of))

    def is_newest(self, of: Incarnation) -> bool:
        """Tell whether no newer incarnation of the replica is known."""
        return self.newest.get(of[0], of[1]) <= of[1]

    def loss(self, of: Incarnation) -> str:
        """Return why an incarnation counts as dead: one rank that is lost is enough."""
        lost = [p.seat.member for p in self.ranks(of) if self.lost(p.seat.member)]
        if not lost:
            return ""
        member = min(lost, key=lambda each: each in self.renounced)  # what came to harm comes first
        if member in self.dead:
            return f"lost rank {member.rank}: {self.dead[member]}"
        return f"is out of reach (rank {member.rank}: {self.unreachable[member]})"

    def has_joined(self, of: Incarnation) -> bool:
        """Tell whether every rank of an incarnation has a join outstanding."""
        ranks = self.ranks(of)
        asking = {p.seat.member.rank for p in ranks if p.join is not None}
        return bool(ranks) and asking >= set(range(ranks[0].seat.num_ranks))

    def has_promised(self, of: Incarnation) -> bool:
        """Tell whether every rank of an incarnation has asked, even if it was refused since."""
        ranks = self.ranks(of)
        asked = {p.seat.member.rank for p in ranks if p.join is not None or p.refused}
        return bool(ranks) and asked >= set(range(ranks[0].seat.num_ranks))

    def ends_in_order(self, of: Incarnation) -> bool:
        """Tell whether an incarnation leaves, and none of its ranks has come to harm."""
        lost = [p.seat.member for p in self.ranks(of) if self.lost(p.seat.member)]
        return of in self.leaving and self.exited.issuperset(lost)

    def living(self) -> set[Incarnation]:
        """Return the newest incarnations that are not lost."""
        return {of for of in self.newest.items() if not self.loss(of)}

    def gone(self, of: Incarnation, now: float) -> str:
        """Return why an incarnation is not waited for though not confirmed dead."""
        if reason := self.loss(of):
            return reason
        if not self.is_newest(of):
            return "was replaced by a newer incarnation"
        why = self.shut_out.get(of) or self.left_out.get(of)
        if why and self.has_promised(of):
            return why  # one that has not asked is waited for: nobody unfenced is left behind
        if (why := self.departing.get(of)) and self.has_promised(of):
            return f"leaves: {why}"  # likewise
        until = self.pauses.get(of, now)
        return f"tries to learn again in {until - now:.1f} s" if until > now else ""

    def view(self, of: Incarnation, now: float, outcome: Outcome) -> ReplicaView:
        """Return one incarnation as ``decide`` looks at it."""
        ranks = self.ranks(of)
        joins = [process.join for process in ranks if process.join is not None]
        return ReplicaView(
            joined_at=max(p.joined_at for p in ranks) if self.has_joined(of) else None,
            beat_at=min((p.beat_at for p in ranks), default=-math.inf),
            dead=bool(ranks) and all(p.seat.member in self.dead for p in ranks),
            gone=self.gone(of, now),
            shrink_only=any(join.shrink_only for join in joins),
            place=_place([join.report for join in joins], outcome),
        )

    def highest_term(self) -> int:
        """Return the highest term that any asking process has seen."""
        return max((_seen(self.report(m)) for m in self.processes), default=0)


def _seen(report: StepReport | None) -> int:
    if report is None:
        return 0
    epochs = [report.seen_epoch, report.committed_epoch]
    if report.last_quorum is not None:
        epochs.append(report.last_quorum.epoch)
    return max(
        report.seen_term,
        report.lineage_term,
        *(epoch.term for epoch in epochs if epoch is not None),
        0,
    )


def _place(reports: list[StepReport], outcome: Outcome) -> Place:
    """Return where a replica stands once each rank has followed the outcome.

    Ranks that then stand at different steps, or whose state is spoiled, cannot go on: the
    replica stands nowhere and must learn.  A rank that is yet to apply the open step knows no
    fingerprint of it.
    """
    if not reports:
        return Place(0)
    steps = {settled_step(report, outcome) for report in reports}
    lineages = {report.lineage_term for report in reports}
    spoiled = any(not report.fingerprint for report in reports)
    if spoiled or len(steps) > 1 or len(lineages) > 1:
        return Place(NOWHERE)
    (step,), (lineage,) = steps, lineages
    prints = [r.fingerprint if r.committed_step == step else "" for r in reports]
    return Place(step, lineage, tuple(prints))
