"""Replicas that live and do not reach each other, and who is left out because of it.

Owns what members say of peers that they could not dial, and the choice that follows.  Pure.

Both ends of such a pair are heard by this service, so that neither is silent, hung or dead; yet no
quorum that holds both can form its group.  One of the pair is left out: it lives, asks and is
told why.  After a while both are tried together again, after a longer one each time that it is in
vain, so that a network that stays cut costs less and less.

Invariants:
    Q-8: who is left out is told why.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from danaus.quorum.messages import MemberId, StepReport

Incarnation = tuple[str, int]
Pair = tuple[Incarnation, Incarnation]

RETRY_S = 5.0
LONGEST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class Rift:
    """One pair does not meet before ``until``, ``wait_s`` after it last failed to."""

    until: float
    wait_s: float


@dataclass(slots=True)
class Rifts:
    """All pairs that are known not to reach each other."""

    _known: dict[Pair, Rift] = field(default_factory=dict)

    def hear(self, member: MemberId, report: StepReport, now: float) -> None:
        """Note whom an asker could not dial, and whom it has committed a step with since."""
        quorum = report.last_quorum
        if self._known and quorum is not None and report.committed_epoch == quorum.epoch:
            met = {_of(each) for each in quorum.members}
            self._known = {p: rift for p, rift in self._known.items() if not met.issuperset(p)}
        for other in report.unreached:
            if other.replica_id != member.replica_id:
                self._note(_pair(_of(member), _of(other)), now)

    def _note(self, pair: Pair, now: float) -> None:
        known = self._known.get(pair)
        if known is None:
            self._known[pair] = Rift(now + RETRY_S, RETRY_S)
        elif now >= known.until:
            wait_s = min(2.0 * known.wait_s, LONGEST_RETRY_S)
            self._known[pair] = Rift(now + wait_s, wait_s)

    def left_out(self, living: set[Incarnation], now: float) -> dict[Incarnation, str]:
        """Return who is left out of the next quorum, and why: as few as it takes.

        Whoever fails to reach the most others goes first; of two alike the later in the order of
        names, so that it is the same one each time.

        Args:
            living: The incarnations that a quorum could hold.
            now: Seconds on the clock of ``hear``.
        """
        open_pairs = {
            pair
            for pair, rift in self._known.items()
            if now < rift.until and living.issuperset(pair)
        }
        out: dict[Incarnation, str] = {}
        while open_pairs:
            counts = Counter(of for pair in open_pairs for of in pair)
            worst = max(counts, key=lambda of: (counts[of], of))
            rifts = {pair for pair in open_pairs if worst in pair}
            others = sorted(name for pair in rifts for name, n in pair if (name, n) != worst)
            wait_s = max(self._known[pair].wait_s for pair in rifts)
            out[worst] = (
                f"is out of reach of {', '.join(others)} (their machines do not answer each "
                f"other; tried again after {wait_s:g} s)"
            )
            open_pairs -= rifts
        return out

    def moments(self) -> list[float]:
        """Return when somebody may be tried again."""
        return [rift.until for rift in self._known.values()]


def _of(member: MemberId) -> Incarnation:
    return member.replica_id, member.incarnation


def _pair(one: Incarnation, other: Incarnation) -> Pair:
    return (one, other) if one < other else (other, one)
