"""Replicas of which one rank is lost while the others live on (H-3).

Owns what becomes of a name that its process gives up, how long a process may take to do so, and
which replicas are expected back with most of their state.  Functions of the quorum machine: pure,
on its ``Situation``.

The incarnation is lost with its first rank, as ever: the others go on at once, and an open step is
settled without it.  A process that can outlive its sibling is given time to say that it votes under
its old name no more.  It is back then under the replica's next incarnation, which is as new as that
of a process that was started: what it held open is dropped, what it had committed it reports.

Invariants:
    H-3: a name that was given up is dead for good; a fence that was ordered for it is called off.
    Q-7: who does not give its name up in time is fenced.
"""

from __future__ import annotations

from danaus.quorum.events import Abort, Pardon
from danaus.quorum.messages import AbortExchange, Announcement, MemberId, Seat
from danaus.quorum.roster import Process, incarnation_of
from danaus.quorum.situation import Situation

REPAIR_LIMIT_S = 60.0
"""So long gradients are kept for a replica that is being repaired; here and at each member."""


def renounce(s: Situation, member: MemberId, reason: str) -> None:
    """Take a name for dead because its process has given it up."""
    roster = s.roster
    if member in roster.dead:
        return
    process = roster.processes.get(member)
    if process is not None and process.fenced_at is not None:
        s.out.append(Pardon(process.seat))
    roster.renounced.add(member)
    roster.bury(member, reason, s.now, clean=False)
    process = roster.processes[member]
    if process.spared_at is None:  # it may know of the loss before this service does
        process.spared_at = s.now


def renounce_older(s: Situation, seat: Seat) -> None:
    """Take those names for dead that a process says it once had."""
    for member in seat.formerly:
        renounce(s, member, f"its process goes on as {seat.member}")


def is_spared(s: Situation, process: Process) -> bool:
    """Tell whether a process has lost a sibling and may yet give its name up.

    It is told to leave what it is blocked in, once.
    """
    member, of = process.seat.member, incarnation_of(process.seat.member)
    if not process.seat.rejoins or process.fenced_at is not None or of in s.roster.leaving:
        return False
    loss = s.roster.loss(of)
    if not loss or s.roster.lost(member):
        return False
    if process.spared_at is None:
        process.spared_at = s.now
        epoch = s.told_of(member) or (s.previous.epoch if s.previous is not None else None)
        if epoch is not None:
            s.out.append(Abort((member,), AbortExchange(epoch, (), f"{of[0]} {loss}")))
    return s.now - process.spared_at < s.settings.renounce_limit_s


def repairing(s: Situation, told: Announcement) -> tuple[str, ...]:
    """Return the replicas that ``told`` does without and that will bring most of their state."""
    if told.start != "live" or told.finished:
        return ()
    listed = {seat.member.replica_id for seat in told.members}
    listed |= {learner.seat.member.replica_id for learner in told.learners}
    found = set()
    for member, process in s.roster.processes.items():
        spared_at, of = process.spared_at, incarnation_of(member)
        if spared_at is None or of[0] in listed or of in s.roster.shut_out:
            continue
        lives = member in s.roster.renounced or not s.roster.lost(member)
        if lives and s.now - spared_at < REPAIR_LIMIT_S:
            found.add(member.replica_id)
    return tuple(sorted(found))
