"""Looking after the quorum that stands.

Owns what is decided between two quorums: who is silent and gets fenced, whose sibling died, who
must leave what it is blocked in (Q-5), and when members are told that a change is coming (Q-2).
Functions of the quorum machine: pure, on its ``Situation``.

Invariants:
    Q-5: on a death the others are told at once.
    Q-7: who is to be left behind is fenced; after ``fence_limit_s`` it counts as out of reach.
"""

from __future__ import annotations

from collections.abc import Iterable

from danaus.quorum.events import Abort, NotifyPending
from danaus.quorum.messages import AbortExchange, ChangePending, MemberId
from danaus.quorum.repairs import is_spared
from danaus.quorum.roster import Process, incarnation_of
from danaus.quorum.situation import Situation

OUTSIDERS_PATIENCE = 6.0
"""How many heartbeat limits a process may be silent that nobody relies on: it may be starting."""


def watch_processes(s: Situation) -> None:
    """Fence who is silent, was replaced or has lost a sibling; give up fences that fail."""
    if s.finished:
        return  # all are about to end, one rank of a replica before the other
    living = [(m, p) for m, p in s.roster.processes.items() if not s.roster.lost(m)]
    living.sort()
    _fence_the_silent(s, living)
    for member, process in living:
        of = incarnation_of(member)
        if is_spared(s, process):
            continue  # not fenced so far, and not now
        if not s.roster.is_newest(of):
            s.fence(process, f"replaced by {of[0]}#{s.roster.newest[of[0]]}")
        elif (loss := s.roster.loss(of)) and not s.roster.ends_in_order(of):
            s.fence(process, f"its replica {loss}")
        if process.fenced_at is not None and s.now - process.fenced_at >= s.settings.fence_limit_s:
            within = f"not killed within {s.settings.fence_limit_s:g} s"
            s.roster.give_up(process, f"{process.fence_reason}; {within}")


def _fence_the_silent(s: Situation, living: list[tuple[MemberId, Process]]) -> None:
    limit_s = s.settings.heartbeat_limit_s
    # Those that fell silent together were cut off together, be it by parts of a second apart.
    lively = {m.replica_id for m, process in living if s.now - process.beat_at <= limit_s / 2}
    _hear_again(s, deaf=not lively)
    relied_on = counted(s)
    for member, process in living:
        silent_s = s.now - process.beat_at
        patience = 1.0 if member in relied_on else OUTSIDERS_PATIENCE
        # If nobody is heard, it is this service that hears nothing.
        if silent_s > patience * limit_s and lively - {member.replica_id}:
            s.fence(process, _silence(s, process))


def _hear_again(s: Situation, *, deaf: bool) -> None:
    """Excuse everyone's silence once somebody is heard again after a time without anybody."""
    was_deaf, s.deaf = s.deaf, deaf
    if was_deaf and not deaf:
        for member, process in s.roster.processes.items():
            if not s.roster.lost(member):
                process.beat_at = max(process.beat_at, s.now)
                process.joined_at = max(process.joined_at, s.now)  # nor is it anybody's delay


def _silence(s: Situation, process: Process) -> str:
    if process.cut_at is not None:
        return f"its connection closed {s.now - process.cut_at:.1f} s ago"
    return f"silent for {s.now - process.beat_at:.1f} s"


def tell_members(s: Situation) -> None:
    """Tell the members of the standing quorum what they must know while it stands."""
    previous = s.previous
    if previous is None or s.finished:
        return
    losses = {m: loss for m in previous.members if (loss := s.roster.loss(incarnation_of(m)))}
    staying = [m for m in previous.members if m not in losses and not s.roster.is_joined(m)]
    if not staying:
        return
    abort = _why_abort(s, previous.members, losses)
    if abort:
        _abort(s, staying, AbortExchange(previous.epoch, tuple(losses), abort))
    if change := abort or _why_change(s, previous.members):
        news = tuple(member for member in staying if member not in s.episode.notified)
        if news:
            s.episode.notified.update(news)
            s.out.append(NotifyPending(news, ChangePending(previous.epoch, change)))


def coming_change(s: Situation) -> str:
    """Return why the membership is about to change; empty: it is not known to be."""
    previous = s.previous
    if previous is None or s.finished:
        return ""
    losses = {m: loss for m in previous.members if (loss := s.roster.loss(incarnation_of(m)))}
    return _why_abort(s, previous.members, losses) or _why_change(s, previous.members)


def remind(s: Situation, member: MemberId) -> bool:
    """Have a member told again what it may have missed; tell whether there was anything."""
    missed = member in s.episode.notified or member in s.episode.aborted
    s.episode.notified.discard(member)
    s.episode.aborted.pop(member, None)
    return missed


def counted(s: Situation) -> set[MemberId]:
    """Return whom others rely on: members, and learners that are waited for."""
    previous = s.previous
    members = set(previous.members) if previous is not None else set()
    return members | {learner.seat.member for learner in s.holding()}


def _why_abort(s: Situation, members: Iterable[MemberId], losses: dict[MemberId, str]) -> str:
    if losses:
        whole = {member.replica_id: loss for member, loss in sorted(losses.items())}
        return "; ".join(f"{replica_id} {loss}" for replica_id, loss in whole.items())
    if s.episode.rebuild:
        return s.episode.rebuild
    if s.holding():
        return ""
    joined = [p for m in members if (p := s.roster.processes.get(m)) and p.join is not None]
    for process in joined:
        if process.join is not None and (others := process.join.report.unreached):
            return f"{process.seat.member} does not reach {', '.join(map(str, others))}"
    if joined and s.now - min(p.joined_at for p in joined) >= s.settings.linger_s:
        return f"{', '.join(str(p.seat.member) for p in joined)} turned to the service"
    return ""


def _abort(s: Situation, staying: list[MemberId], message: AbortExchange) -> None:
    reason = message.reason
    news = tuple(member for member in staying if s.episode.aborted.get(member) != reason)
    if news:
        s.episode.aborted.update(dict.fromkeys(news, reason))
        s.out.append(Abort(news, message))


def _why_change(s: Situation, members: Iterable[MemberId]) -> str:
    """Return why the membership is about to change; empty: it is not."""
    inside = {incarnation_of(member) for member in members}
    for of in sorted(inside):
        if reason := s.roster.shut_out.get(of):
            return f"{of[0]} {reason}"
        if (reason := s.roster.leaving.get(of)) and not s.roster.loss(of):
            return f"{of[0]} leaves: {reason}"
    for of in sorted(s.roster.newest.items()):
        if of not in inside and s.roster.has_joined(of) and not s.roster.gone(of, s.now):
            return f"{of[0]}#{of[1]} is ready to join"
    return ""
