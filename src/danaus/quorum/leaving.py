"""Replicas that were asked to leave: when each of them may go.

Owns the drain as the service sees it.  A replica that is to leave takes its step to the end and
asks for the next quorum like everybody; it is not a member of that quorum, and is let go once the
quorum is announced.  Until then it counts: should the others die at that very moment, it is still
there.  Functions of the quorum machine: pure, on its ``Situation``.

Invariants:
    T-1: who leaves has promised by its ask to vote no more, so that nothing is left open.
    H-5: the last that hold the state go only once they were told to write it down.
"""

from __future__ import annotations

from danaus.quorum.events import Abort, Release
from danaus.quorum.messages import AbortExchange, Released
from danaus.quorum.roster import Incarnation, incarnation_of
from danaus.quorum.situation import Situation


def departing(s: Situation) -> dict[Incarnation, str]:
    """Return who may be left behind, and why: nobody that holds the state together with none."""
    asked = {of: why for of, why in s.roster.leaving.items() if not s.roster.loss(of)}
    if not asked or _staying(s):
        return asked
    members = _members(s)
    return {of: why for of, why in asked.items() if of not in members}


def wake(s: Situation, of: Incarnation) -> None:
    """Have a replica that is to leave, and is no member, leave what it is blocked in."""
    standing = s.standing
    if standing is None or of in _members(s):
        return
    reason = f"{of[0]} leaves: {s.roster.leaving[of]}"
    for member in [p.seat.member for p in s.roster.ranks(of) if p.join is None]:
        if (told := s.told_of(member)) is not None:
            s.out.append(Abort((member,), AbortExchange(told, (), reason)))


def release_outsiders(s: Situation) -> None:
    """Let those go that are to leave and that no quorum counts on."""
    members = _members(s)
    for of in sorted(s.roster.departing):
        if of not in members:
            _release(s, of)


def release_last(s: Situation) -> bool:
    """Let the last of a quorum go, who are all to leave; tell whether they went.

    One of them is told to write the state down.  Where somebody is there who can learn it from
    them, where a step is open, or ranks stand at different steps, they form a quorum once more.
    """
    members, roster = _members(s), s.roster
    living = sorted(of for of in members if roster.is_newest(of) and not roster.loss(of))
    if not living or _staying(s) or not all(map(roster.has_joined, living)):
        return False
    others = [of for of in roster.newest.items() if of not in members]
    if any(roster.has_joined(of) and not roster.gone(of, s.now) for of in others):
        return False
    reports = [report for of in living for report in roster.reports(of)]
    steps = {(report.lineage_term, report.committed_step) for report in reports}
    unsettled = any(r.open_step is not None or not r.fingerprint or r.done for r in reports)
    if unsettled or len(steps) > 1:
        return False
    for of in living:
        _release(s, of, save=of == living[0])
    return True


def release_alone(s: Situation) -> None:
    """Let those go whom the others cannot go on without, once all ask: too few are left."""
    living = [of for of in _members(s) if s.roster.is_newest(of) and not s.roster.loss(of)]
    if _staying(s) and all(map(s.roster.has_joined, living)):
        for of in sorted(s.roster.departing):
            _release(s, of)


def _release(s: Situation, of: Incarnation, *, save: bool = False) -> None:
    asking = [process for process in s.roster.ranks(of) if process.join is not None]
    if not asking:
        return
    for process in asking:
        if s.undo is not None and process.join is not None:
            s.undo.joins.append((process, process.join))
        process.join, process.told, process.refused = None, "", True
    reason = f"{of[0]} leaves: {s.roster.leaving[of]}"
    if save:
        reason += "; nobody else holds the state"
    members = tuple(process.seat.member for process in asking)
    s.out.append(Release(members, Released(reason, save)))


def _members(s: Situation) -> set[Incarnation]:
    previous = s.previous
    return {incarnation_of(member) for member in previous.members} if previous else set()


def _staying(s: Situation) -> list[Incarnation]:
    """Return the members of the last quorum that live and stay."""
    roster = s.roster
    apart = {**roster.leaving, **roster.shut_out, **roster.left_out}
    return [
        of
        for of in sorted(_members(s))
        if of not in apart and roster.is_newest(of) and not roster.loss(of)
    ]
