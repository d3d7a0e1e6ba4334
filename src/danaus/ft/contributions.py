"""Whose tensors count in a step of the ``Manager``.

Owns the choice among the replicas of a quorum, as a pure function: the same at every member.

Invariants:
    T-6: who does not contribute is not divided by.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence


class WorldSizeMode(enum.Enum):
    """How many replicas contribute to a step where more than ``min_replica_size`` are there.

    ``DYNAMIC``: all of them.  ``FIXED_WITH_SPARES``: exactly ``min_replica_size``; the others are
    spares, which hold the same state, vote, and add nothing.
    """

    DYNAMIC = 0
    FIXED_WITH_SPARES = 1


def choose_contributors(
    replica_ids: Sequence[str],
    unable: Collection[str] = (),
    *,
    mode: WorldSizeMode = WorldSizeMode.DYNAMIC,
    min_replica_size: int = 1,
) -> tuple[str, ...]:
    """Return the replicas that contribute, in the order of their ranks.

    Args:
        replica_ids: The quorum's, by rank.
        unable: Those whose forward began before they had learned the state of this step.
        mode: Whether there are spares.
        min_replica_size: How many contribute where there are: those of the lowest ranks.
    """
    able = tuple(name for name in replica_ids if name not in unable)
    return able[:min_replica_size] if mode is WorldSizeMode.FIXED_WITH_SPARES else able
