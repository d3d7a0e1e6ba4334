"""Leaves that are computed twice, on different hosts, and compared (T-8).

Owns which leaf of which step is looked at, by whom, and what the digests say that come with the
votes.  Pure; every member sees the same votes and so finds the same.

One leaf in ``1 / rate`` is computed again by a second replica, on another host where there is one.
Where the two differ the step is refused, and in the next try every replica computes that leaf: what
most of them come to counts.  A replica that differs from it is named and ends; it may have been the
one whose leaf is in the sum, or the one that only looked.

Invariants:
    T-8: a leaf that is found to be wrong is not committed.
    A process that is named differs from more than half of those that computed the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from danaus.core.errors import ConfigError
from danaus.quorum.messages import MemberId


class Audited(msgspec.Struct, frozen=True, array_like=True):
    """The digest of one leaf as one rank computed it; ``own``: it is part of that rank's sum."""

    leaf: int
    digest: str
    own: bool


Digests = Mapping[MemberId, Sequence[Audited]]


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How often a leaf is computed twice.

    Args:
        rate: Share of the leaves, from 0 (never) to 1 (each step has one at least).
        seed: Chooses them; the same at every member.
    """

    rate: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0:
            raise ConfigError(f"an audit rate of {self.rate:g}", "from 0 (never) to 1")

    def leaf_of(self, step: int, num_leaves: int) -> int | None:
        """Return the leaf of ``step`` that is computed twice, None if none is."""
        draw = _draw(self.seed, step)
        if draw % _PARTS >= self.rate * num_leaves * _PARTS:
            return None
        return draw // _PARTS % num_leaves


NEVER = AuditPlan()
_PARTS = 1 << 32


def _draw(*facts: int) -> int:
    text = " ".join(str(fact) for fact in facts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


def auditor_of(
    step: int, leaf: int, runs: Mapping[str, range], *, hosts: Mapping[str, str]
) -> str | None:
    """Return the replica that computes a leaf a second time; None where nobody else is there.

    Args:
        step: The step.
        leaf: The leaf.
        runs: The leaves of each replica.
        hosts: Where each replica is; one elsewhere than the first is preferred.
    """
    owner = next((name for name, run in runs.items() if leaf in run), None)
    others = sorted(name for name in runs if name != owner)
    elsewhere = [name for name in others if owner and hosts.get(name) != hosts.get(owner)]
    legal = elsewhere or others
    return legal[_draw(step, leaf) % len(legal)] if legal else None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What the digests of one leaf say.

    Args:
        leaf: Which.
        wrong: Members that differ from most; empty where there is no majority.
        is_in_sum: Whether what was reduced may hold a wrong leaf.
        words: Who computed what.
    """

    leaf: int
    wrong: frozenset[MemberId]
    is_in_sum: bool
    words: str


def compare(digests: Digests) -> tuple[Disagreement, ...]:
    """Return the leaves about which ranks that hold the same shard differ."""
    seen: dict[tuple[int, int], dict[MemberId, Audited]] = {}
    for member, audits in sorted(digests.items()):
        for audit in audits:
            seen.setdefault((audit.leaf, member.rank), {})[member] = audit
    found = (_judge(leaf, by) for (leaf, _), by in sorted(seen.items()))
    return tuple(each for each in found if each is not None)


def _judge(leaf: int, by: Mapping[MemberId, Audited]) -> Disagreement | None:
    counts = Counter(audit.digest for audit in by.values())
    if len(counts) < 2:
        return None
    right, votes = counts.most_common(1)[0]
    settled = 2 * votes > len(by)
    wrong = {m for m, audit in by.items() if audit.digest != right} if settled else set()
    in_sum = not settled or any(by[member].own for member in wrong)
    who = "; ".join(f"{digest} at {_names(by, digest)}" for digest in sorted(counts))
    return Disagreement(leaf, frozenset(wrong), in_sum, f"leaf {leaf} comes out as {who}")


def _names(by: Mapping[MemberId, Audited], digest: str) -> str:
    return ", ".join(str(member) for member, audit in by.items() if audit.digest == digest)


def objection(digests: Digests) -> str:
    """Return why what was reduced must not be applied, or nothing."""
    return "; ".join(each.words for each in compare(digests) if each.is_in_sum)


class Audits:
    """What one member computes a second time, and what it remembers of a leaf in dispute.

    Args:
        me: This member.
        plan: How often.
    """

    def __init__(self, me: MemberId, plan: AuditPlan) -> None:
        self._me, self._plan = me, plan
        self._disputed_step = 0
        self.num_disputes = 0
        """How often in a row a leaf of one step came out differently without a majority."""

    def is_disputed(self, step: int) -> bool:
        """Tell whether a leaf of ``step`` came out differently in an earlier try."""
        return step == self._disputed_step

    def leaf(
        self, step: int, runs: Mapping[str, range], hosts: Mapping[str, str], *, disputed: bool
    ) -> int | None:
        """Return the leaf whose digest this member brings to the vote, if there is one.

        It computes it besides its own where it is not one of those.

        Args:
            step: The step.
            runs: The leaves of each replica.
            hosts: Where each replica is.
            disputed: The leaf came out differently before: everybody computes it.
        """
        leaf = self._plan.leaf_of(step, sum(len(run) for run in runs.values()))
        if leaf is None:
            return None
        looks = auditor_of(step, leaf, runs, hosts=hosts) == self._me.replica_id
        return leaf if disputed or looks or leaf in runs[self._me.replica_id] else None

    def settle(self, step: int, digests: Digests) -> tuple[Disagreement, ...]:
        """Take the digests of a vote in; return what they say of a leaf that differs."""
        found = compare(digests)
        if found and step != self._disputed_step:
            self._disputed_step, self.num_disputes = step, 0
        self.num_disputes += any(not each.wrong for each in found)
        return found
