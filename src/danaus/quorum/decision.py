"""Who takes part in the next quorum, or why there is none yet.

Owns the decision of Q-3, Q-4 and the majority guard, as one pure function over replicas.  What
it leaves: processes and ranks (``quorum.roster``), epochs, outcomes and messages
(``quorum.state``).

Invariants:
    Q-3: a quorum follows another only with a member of it, whose promise ended it, or once all
    of its members are confirmed dead.
    Q-4: once every member of the last quorum is back, dead or out of reach, nobody is waited for.
    Q-8: every decision has a reason in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from danaus.quorum.agreement import Agreement, Place, agree
from danaus.quorum.events import QuorumSettings

Fate = Literal["back", "dead", "gone", "silent", "missing"]
SEED = Place(0)


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One incarnation of one replica as the service sees it.

    Args:
        joined_at: When the last of its ranks had asked, in seconds; None: not all have.
        beat_at: Last heartbeat of its most silent rank, in seconds.
        dead: Every rank is confirmed dead.
        gone: Why it is not waited for though not confirmed dead; empty: it is.
        shrink_only: It asked that no newcomer be admitted.
        place: Where it stands once it has followed the open step's outcome.
    """

    joined_at: float | None = None
    beat_at: float = -math.inf
    dead: bool = False
    gone: str = ""
    shrink_only: bool = False
    place: Place = SEED


@dataclass(frozen=True, slots=True)
class View:
    """What ``decide`` decides from.

    Args:
        settings: Policy.
        replicas: The newest incarnation of each known replica.
        previous: Those incarnations that were members of the last quorum.
        disk_lost: The last quorum is known by hearsay only (Q-3).
        trailing: Replicas that learn while the others go on, and have not asked since.
    """

    settings: QuorumSettings
    replicas: Mapping[str, ReplicaView]
    previous: Mapping[str, ReplicaView] = field(default_factory=dict)
    disk_lost: bool = False
    trailing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """A quorum or none (``members`` is None), and why.

    ``fast``: formed without waiting for anyone (Q-4).  ``all_dead``: there was a last quorum
    and all of it is confirmed dead.  ``agreement`` tells who holds the state; where it has no
    holder, ``members`` are all that take part.
    """

    members: tuple[str, ...] | None
    learners: tuple[str, ...]
    reason: str
    fast: bool = False
    all_dead: bool = False
    agreement: Agreement | None = None


def decide(view: View, now: float) -> Decision:
    """Return the next quorum, or why there is none yet.

    Args:
        view: All that is known.
        now: Seconds on the clock that the view's times are on.
    """
    limit_s = view.settings.heartbeat_limit_s
    fates = {n: _fate(r, now, limit_s) for n, r in view.previous.items()}
    asking = {n: r for n, r in view.replicas.items() if _fate(r, now, limit_s) == "back"}
    blocked = _too_few(view, asking, now) or _unsafe(view, fates)
    if blocked:
        return Decision(None, (), blocked)
    back = [name for name, fate in fates.items() if fate == "back"]
    fast = bool(back) and "missing" not in fates.values()
    if not fast:
        blocked = _must_wait(view, asking, now=now, back=back)
        if blocked:
            return Decision(None, (), blocked)
    if any(replica.shrink_only for replica in asking.values()):
        asking = {name: replica for name, replica in asking.items() if name in back}
        if blocked := _too_few(view, asking, now):
            return Decision(None, (), blocked)
    agreement = agree({name: replica.place for name, replica in asking.items()}, back)
    return Decision(
        members=agreement.holders or tuple(sorted(asking)),
        learners=agreement.behind if agreement.holders else (),
        reason=_why(view, asking, fates, now=now),
        fast=fast,
        all_dead=bool(fates) and not back,
        agreement=agreement,
    )


def _fate(replica: ReplicaView, now: float, limit_s: float) -> Fate:
    if replica.dead:
        return "dead"
    if replica.gone:
        return "gone"
    if now - replica.beat_at > limit_s:
        return "silent"
    return "missing" if replica.joined_at is None else "back"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _too_few(view: View, asking: Mapping[str, ReplicaView], now: float) -> str:
    """Say so where fewer than ``min_replicas`` ask."""
    settings = view.settings
    if len(asking) >= max(1, settings.min_replicas):
        return ""
    silent = sum(
        1
        for replica in view.replicas.values()
        if _fate(replica, now, settings.heartbeat_limit_s) == "silent"
    )
    reason = f"{len(asking)} of {max(1, settings.min_replicas)} needed"
    return f"{reason}: {silent} silent" if silent else reason


def _unsafe(view: View, fates: Mapping[str, Fate]) -> str:
    """Say so where another quorum may still be alive (Q-3)."""
    if view.disk_lost:
        waiting = [name for name, fate in fates.items() if fate not in ("back", "dead")]
        if waiting:
            noun = "a member" if len(waiting) == 1 else "members"
            return f"waiting for {_names(waiting)}, {noun} of the largest quorum heard of"
    if fates and "back" not in fates.values() and any(f != "dead" for f in fates.values()):
        return "no member of the last quorum has joined or is confirmed dead"
    return ""


def _must_wait(
    view: View, asking: Mapping[str, ReplicaView], *, back: Sequence[str], now: float
) -> str:
    """Say whom a quorum that is not complete waits for."""
    settings = view.settings
    limit_s = settings.heartbeat_limit_s
    healthy = [
        name
        for name, replica in view.replicas.items()
        if _fate(replica, now, limit_s) in ("back", "missing") and name not in view.trailing
    ]
    late = [name for name in healthy if name not in asking]
    if 2 * len(asking) <= len(healthy):
        waits = f"{len(asking)} of {len(healthy)} healthy is not a majority"
        return f"{waits}; waiting for {_names(late)}"
    # A newcomer may have asked long before: the members were taking their step meanwhile.
    counted = [view.previous[name] for name in back] or list(asking.values())
    first = min(replica.joined_at or 0.0 for replica in counted)
    if now - first >= settings.join_limit_s:
        return ""
    if late:
        return f"waiting for {_names(late)} until the join limit of {settings.join_limit_s:g} s"
    if not back and len(asking) < settings.expected_replicas:
        return (
            f"{len(asking)} of {settings.expected_replicas} expected have joined; waiting until "
            f"the join limit of {settings.join_limit_s:g} s"
        )
    return ""


def _why(
    view: View, asking: Mapping[str, ReplicaView], fates: Mapping[str, Fate], *, now: float
) -> str:
    """Say what the quorum rests on and why others are not in it."""
    parts = [f"{_names(asking)} joined"]
    if fates and all(fate == "dead" for fate in fates.values()):
        parts.append("all of the last quorum are dead")
    for name, fate in sorted(fates.items()):
        replica = view.previous[name]
        if fate == "dead":
            parts.append(f"{name} is dead (reported)")
        elif fate == "gone":
            parts.append(f"{name} {replica.gone}")
        elif fate == "silent" and math.isinf(replica.beat_at):
            parts.append(f"{name} not heard of")
        elif fate == "silent":
            parts.append(f"{name} silent for {now - replica.beat_at:.1f} s")
        elif fate == "missing":
            parts.append(f"{name} did not ask within {view.settings.join_limit_s:g} s")
    if any(replica.shrink_only for replica in asking.values()):
        parts.append("no newcomer is admitted")
    return "; ".join(parts)
