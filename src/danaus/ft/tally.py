"""What the ballots of one step say together.

Owns the counting of votes, as pure functions; ``ft.step`` acts on the result.

Invariants:
    T-1: ``commit`` only where every member of the epoch is prepared, with one digest per rank
    (the ranks of a replica hold different shards), and nothing vetoes it.
    T-8: a sum that may hold a leaf which others compute differently is refused.
    Q-9: replicas whose states differ before the step refuse it, whoever of them is right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from danaus.ft import audit
from danaus.ft.step_events import Ballot, Votes
from danaus.quorum.messages import Epoch, MemberId

_MOST_NAMED = 4
Count = Literal["commit", "refused", "unknown"]


class Tally(msgspec.Struct, frozen=True):
    """The result of a vote as far as this member knows it.

    ``unknown``: votes are missing and none of those here speaks against the step.
    """

    count: Count
    reason: str
    change_pending: str = ""


def tally(
    votes: Votes, members: Sequence[MemberId], *, epoch: Epoch, step: int, veto: bool = True
) -> Tally:
    """Count the votes of (step, epoch).

    Args:
        votes: The ballots that came, this member's own included.
        members: Every member process of the epoch.
        epoch: The epoch voted in; ballots of another are not counted.
        step: The step voted on; ballots of another are not counted.
        veto: Whether unequal fingerprints of the step before refuse this one (Q-9).
    """
    ballots = [
        votes[member]
        for member in members
        if member in votes
        and votes[member].member == member
        and votes[member].epoch == epoch
        and votes[member].step == step
    ]
    change = next((ballot.change_pending for ballot in ballots if ballot.change_pending), "")
    against = objection(ballots, veto=veto)
    if against:
        return Tally("refused", against, change)
    if len(ballots) < len(members):
        here = {ballot.member for ballot in ballots}
        missing = ", ".join(str(member) for member in members if member not in here)
        return Tally("unknown", f"no vote from {missing}", change)
    return Tally("commit", "every member is prepared with one digest", change)


def objection(ballots: Collection[Ballot], *, veto: bool) -> str:
    """Return what speaks against the step in these ballots, or nothing."""
    by_rank: dict[int, list[Ballot]] = {}
    refused = [ballot for ballot in ballots if ballot.vote != "prepared"]
    if refused:
        return _refusals(refused)
    for ballot in ballots:
        by_rank.setdefault(ballot.member.rank, []).append(ballot)
    for rank, group in sorted(by_rank.items()):
        against = veto and _differing(group, "fingerprint")
        if against:
            return f"states before the step differ at rank {rank}: {against}"
        if against := _differing(group, "digest"):
            return f"reduced gradients differ at rank {rank}: {against}"
    return audit.objection({ballot.member: ballot.audited for ballot in ballots})


def blamed(ballots: Iterable[Ballot]) -> frozenset[str]:
    """Return the replicas whose own share of the step is what speaks against it."""
    return frozenset(ballot.member.replica_id for ballot in ballots if ballot.own_share)


def _refusals(refused: list[Ballot]) -> str:
    """Return who refuses and why: first whose own share it is, if that can be told."""
    by_reason: dict[str, list[str]] = {}
    for ballot in sorted(refused, key=lambda each: not each.own_share):
        why = ballot.reason or "no reason given"
        by_reason.setdefault(why, []).append(str(ballot.member))
    each = [f"{_listed(who)} refused: {why}" for why, who in by_reason.items()]
    return "; ".join(each[:_MOST_NAMED])


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _differing(group: list[Ballot], field: str) -> str:
    if len({getattr(ballot, field) for ballot in group}) < 2:
        return ""
    holders: dict[str, list[str]] = {}
    for ballot in group:
        holders.setdefault(getattr(ballot, field), []).append(str(ballot.member))
    return "; ".join(f"{value or 'none'} at {', '.join(who)}" for value, who in holders.items())
