"""Who is healed by whom (H-1, H-2).

Owns the spreading of learners over donors.  Pure.  Which replicas are behind is decided by
``quorum.agreement``; how bytes travel is the transfer's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def plan_healing(
    up_to_date: Sequence[str],
    recovering: Sequence[str],
    *,
    rank: int = 0,
    attempts: Mapping[str, int] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Return each recovering replica's donors, the first first.

    The i-th recovering replica, in id order, starts at ``up_to_date[(i + rank) % n]``, so that
    neither one donor nor one rank of it carries all; the others follow as stripes.  Each failed
    attempt moves on by one donor.

    Args:
        up_to_date: Ids of the replicas that hold the state.
        recovering: Ids of those that need it.
        rank: Rank inside the replica whose shard is fetched.
        attempts: Failed attempts so far, by recovering replica.

    Returns:
        Donors by recovering replica; empty tuples where nobody holds the state.
    """
    donors = sorted(up_to_date)
    failed = attempts or {}
    plan: dict[str, tuple[str, ...]] = {}
    for index, name in enumerate(sorted(recovering)):
        if not donors:
            plan[name] = ()
            continue
        first = (index + rank + failed.get(name, 0)) % len(donors)
        plan[name] = (*donors[first:], *donors[:first])
    return plan
