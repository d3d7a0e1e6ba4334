"""Who holds the run's state, and who is behind (Q-9, T-6, H-1).

Owns the comparison of steps, lineages and fingerprints among those who joined.  Pure.

Invariants:
    Q-9: at equal step the later lineage wins; equal lineage and step with unequal fingerprints
    is divergence, and the minority heals from the majority of the last quorum's members.
    T-6: in the first quorum all replicas take the state of the lowest id; later ones, still
    before the first step, follow a majority where there is one: then it is a bit that flipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NOWHERE = -1
"""The step of a replica whose ranks stand at different steps."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one replica stands.

    Args:
        step: Committed step, the open step's outcome followed.
        lineage: Term of the restore that the state descends from.
        fingerprints: One per rank, of the state after ``step``; empty where it is not known.
    """

    step: int
    lineage: int = 0
    fingerprints: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """All ranks' fingerprints as one value, empty unless each is known."""
        return "" if "" in self.fingerprints else ",".join(self.fingerprints)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Who can go on from which step.

    ``diverged`` maps each replica at that step to its fingerprint where they differ;
    ``holders`` is empty where they differ without a majority.
    """

    step: int
    lineage: int
    holders: tuple[str, ...]
    behind: tuple[str, ...]
    diverged: Mapping[str, str] = field(default_factory=dict)


def agree(places: Mapping[str, Place], voters: Iterable[str] = ()) -> Agreement:
    """Return who holds the newest state.

    Args:
        places: Where each replica that takes part stands.
        voters: Those of them that were in the last quorum: the state is theirs, and another
            must equal it.  Empty: all have a say.

    Returns:
        The agreement; without any replica, one about step 0 that nobody holds.
    """
    voters = tuple(voters)
    electors = {name: places[name] for name in voters if name in places} or dict(places)
    if not electors:
        return Agreement(0, 0, (), ())
    lineage, step = max((place.lineage, place.step) for place in electors.values())
    top = {n: p for n, p in electors.items() if (p.lineage, p.step) == (lineage, step)}
    prints = {name: place.fingerprint for name, place in top.items() if place.fingerprint}
    diverged = dict(sorted(prints.items())) if len(set(prints.values())) > 1 else {}
    winner = _winner(prints, step, fresh=step == 0 and electors.keys().isdisjoint(voters))
    if winner is None:
        return Agreement(step, lineage, (), tuple(sorted(places)), diverged)
    holders = [n for n, p in places.items() if _equals(p, Place(step, lineage, (winner,)))]
    behind = [n for n in places if n not in holders]
    return Agreement(step, lineage, tuple(sorted(holders)), tuple(sorted(behind)), diverged)


def _winner(prints: Mapping[str, str], step: int, *, fresh: bool) -> str | None:
    """Return the fingerprint to follow, empty where none is known, None without a majority.

    ``fresh``: none of them was in a quorum yet, and nothing says that they began as equals.
    """
    if not prints:
        return ""
    value, votes = Counter(prints.values()).most_common(1)[0]
    if 2 * votes > len(prints) and not fresh:
        return value
    return prints[min(prints)] if step == 0 else None


def _equals(place: Place, followed: Place) -> bool:
    if place.step != followed.step:
        return False
    if place.fingerprint and followed.fingerprint:
        # Equal bits at an equal step are the same state, whatever their history.
        return place.fingerprint == followed.fingerprint
    return place.lineage == followed.lineage
