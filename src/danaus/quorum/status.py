"""What a person may want to know of a quorum: a snapshot of the machine, as values.

Owns the snapshot's words.  Pure; pages, metrics and JSON are made of it (``quorum.http_face``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from danaus.quorum.messages import MemberId
from danaus.quorum.roster import Process, incarnation_of
from danaus.quorum.situation import Situation
from danaus.quorum.watch import coming_change

Role = Literal["member", "learner", "asks", "outside", "dead"]


class Progress(msgspec.Struct, frozen=True):
    """How far a process is known to have come; ``phase`` is empty where nobody watches it."""

    step: int
    phase: str = ""


class ProcessStatus(msgspec.Struct, frozen=True):
    """One process of the newest incarnation of a replica.

    ``role``: a member of the standing quorum, a learner of it, one that asks for the next,
    outside of all that, or dead.  ``silent_s`` is since it was last heard, ``is_slow`` whether it
    is persistently slower than the others, ``note`` why it waits, is away, slow or to leave.
    """

    replica: str
    rank: int
    incarnation: int
    role: Role
    step: int
    phase: str
    silent_s: float
    is_slow: bool
    asks: bool
    note: str
    data_address: str
    agent_address: str


class QuorumStatus(msgspec.Struct, frozen=True):
    """The standing quorum, and what the next one waits for.

    ``epoch`` is empty where there is none.  ``waiting`` are the reasons that those who ask are
    told (Q-8), ``change`` is why the membership is about to change.
    """

    epoch: str
    term: int
    number: int
    committed_step: int
    start: str
    hold: bool
    finished: bool
    reason: str
    waiting: tuple[str, ...]
    change: str
    stopped: str
    num_members: int
    num_learners: int
    num_asking: int
    min_replicas: int
    expected_replicas: int
    processes: tuple[ProcessStatus, ...]


def status_of(s: Situation, now: float, progress: Mapping[MemberId, Progress]) -> QuorumStatus:
    """Return a snapshot.

    Args:
        s: What the machine knows.
        now: On its clock.
        progress: What the shell has heard of steps and phases.
    """
    standing, previous = s.standing, s.previous
    members = previous.members if previous is not None else ()
    learners = [each.seat.member for each in standing.learners] if standing is not None else []
    asking = s.roster.joined()
    told = standing if not s.by_hearsay else None
    epoch = previous.epoch if previous is not None else None
    return QuorumStatus(
        epoch=str(epoch) if epoch is not None else "",
        term=epoch.term if epoch is not None else 0,
        number=epoch.n if epoch is not None else 0,
        committed_step=told.committed_step if told is not None else 0,
        start=told.start if told is not None else "",
        hold=told.hold if told is not None else False,
        finished=s.finished,
        reason=told.reason if told is not None else "",
        waiting=tuple(sorted({process.told for process in asking if process.told})),
        change=coming_change(s),
        stopped=s.stopped.reason if s.stopped is not None else "",
        num_members=len(members),
        num_learners=len(learners),
        num_asking=len(asking),
        min_replicas=s.settings.min_replicas,
        expected_replicas=s.settings.expected_replicas,
        processes=tuple(
            _process(s, process, now, known=progress.get(member))
            for member, process in sorted(s.roster.processes.items())
            if s.roster.is_newest(incarnation_of(member))
        ),
    )


def _process(
    s: Situation, process: Process, now: float, *, known: Progress | None
) -> ProcessStatus:
    seat, member = process.seat, process.seat.member
    report = s.roster.report(member)
    told = s.standing.committed_step if s.standing is not None else 0
    step = known.step if known is not None else report.committed_step if report else told
    return ProcessStatus(
        replica=member.replica_id,
        rank=member.rank,
        incarnation=member.incarnation,
        role=_role(s, member),
        step=step,
        phase=known.phase if known is not None else "",
        silent_s=round(max(0.0, now - process.beat_at), 3),
        is_slow=member in s.slow,
        asks=report is not None,
        note=_note(s, process),
        data_address=seat.data_address,
        agent_address=seat.agent_address,
    )


def _role(s: Situation, member: MemberId) -> Role:
    if member in s.roster.dead:
        return "dead"
    if s.previous is not None and member in s.previous.members:
        return "member"
    if any(
        learner.seat.member == member for learner in (s.standing.learners if s.standing else ())
    ):
        return "learner"
    return "asks" if s.roster.is_joined(member) else "outside"


def _note(s: Situation, process: Process) -> str:
    member = process.seat.member
    of = incarnation_of(member)
    known = (
        s.roster.dead.get(member),
        s.roster.unreachable.get(member),
        process.fence_reason if process.fenced_at is not None else None,
        s.roster.shut_out.get(of),
        f"leaves: {s.roster.leaving[of]}" if of in s.roster.leaving else None,
        s.roster.left_out.get(of),
        process.told,
        f"slow: it {s.slow[member].reason}" if member in s.slow else None,
    )
    return next((why for why in known if why), "")
