"""Who computes more slowly than the others, step after step.

Owns ``PaceWatch``, which is shown what each member took for a leaf (it rides on the votes) and says
who is persistently slow, and when that is over.  Pure.  All members see the same votes and so find
the same; one of them tells the quorum service, which writes it down and, if it is asked to,
replaces whom it concerns.

A pace is seconds per leaf, without the time in which a rank waited for its siblings: shares differ
in size, and the ranks of a replica wait for the slowest of them.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from danaus.core.errors import ConfigError
from danaus.quorum.messages import Finding, MemberId

LEAST_PACE_S = 1e-3
"""Leaves that the others compute faster than this tell nothing: it is the machine's noise."""
_LOOKS = 5
"""How often in its window a verdict is looked for."""


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """When a member counts as slow.

    Args:
        factor: Its pace, as a multiple of the median of the others'; 0: nobody ever does.
        num_steps: Over so many steps: the median of its multiples in them counts.
    """

    factor: float = 1.5
    num_steps: int = 50

    def __post_init__(self) -> None:
        if self.factor and self.factor <= 1.0:
            raise ConfigError(f"a straggler's factor is {self.factor:g}", "above 1, or 0 for never")
        if self.num_steps < 1:
            raise ConfigError(f"a straggler's window is {self.num_steps} steps", "at least 1")


USUAL = PaceLimits()


class PaceWatch:
    """Watch the members' paces.

    Args:
        me: This member: it tells of others, if it is the first of them, and never of itself.
        limits: When a member counts as slow.
    """

    def __init__(self, me: MemberId, limits: PaceLimits) -> None:
        self._me, self._limits = me, limits
        self._multiples: dict[MemberId, deque[tuple[float, float, float]]] = {}
        self._slow: set[MemberId] = set()
        self._num_seen = 0

    def observe(self, step: int, paces: Mapping[MemberId, float]) -> tuple[Finding, ...]:
        """Take one step in; return what this member has to tell the service.

        Who stays slow is told of again with each window: what was told may have been lost.

        Args:
            step: The step.
            paces: Seconds per leaf of each member; 0 of one that computed none.
        """
        if not self._limits.factor:
            return ()
        self._multiples = {m: seen for m, seen in self._multiples.items() if m in paces}
        self._slow &= paces.keys()
        for member, pace_s in paces.items():
            self._take(member, pace_s, paces)
        self._num_seen += 1
        if self._num_seen % max(1, self._limits.num_steps // _LOOKS):
            return ()
        found = [self._judge(step, member) for member in sorted(self._multiples)]
        told = tuple(finding for finding in found if finding is not None)
        return tuple(each for each in told if self._speaks_of(each.about, paces))

    def _take(self, member: MemberId, pace_s: float, paces: Mapping[MemberId, float]) -> None:
        others = [s for m, s in paces.items() if m.replica_id != member.replica_id and s > 0.0]
        if pace_s <= 0.0 or not others:
            return
        usual_s = statistics.median_low(others)
        if usual_s >= LEAST_PACE_S:
            window = deque[tuple[float, float, float]](maxlen=self._limits.num_steps)
            seen = self._multiples.setdefault(member, window)
            seen.append((pace_s / usual_s, pace_s, usual_s))

    def _judge(self, step: int, member: MemberId) -> Finding | None:
        seen, factor = self._multiples[member], self._limits.factor
        if len(seen) < self._limits.num_steps:
            return None
        multiple, pace_s, usual_s = sorted(seen)[len(seen) // 2]
        took = (
            f"took {multiple:.1f} times as long as the others over the last {len(seen)} steps "
            f"({pace_s:.3g} s a leaf, they {usual_s:.3g} s)"
        )
        if multiple >= factor and (member not in self._slow or self._num_seen % len(seen) == 0):
            self._slow.add(member)
            return Finding(self._me, member, "slow", step, took)
        if multiple < (1.0 + factor) / 2.0 and member in self._slow:
            self._slow.discard(member)
            return Finding(self._me, member, "not_slow", step, took)
        return None

    def _speaks_of(self, about: MemberId, members: Mapping[MemberId, float]) -> bool:
        """Tell whether it is this member that tells: one is enough."""
        others = (member for member in members if member.replica_id != about.replica_id)
        return min(others, default=None) == self._me
