"""Who is to train, and where: what to start and what to drain.

Owns the decisions behind ``danaus scale``, ``danaus drain`` and ``danaus roll``, and the choice of
a host for a replica that cannot stay on its own.  Pure.

A replica is known by its place: ``replica-2`` has place 2.  Places that do not train keep their
names for later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from danaus.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run can have.

    Args:
        min_replicas: Fewer take no step.
        num_leaves: Of a step: more replicas have nothing to do.
        elastic: The batch is laid out for the replicas that the run began with.
    """

    min_replicas: int
    num_leaves: int
    elastic: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What to do: places to start, then places to drain, in order."""

    start: tuple[int, ...] = ()
    drain: tuple[int, ...] = ()


def scale(wanted: Iterable[int], replicas: int, limits: Limits) -> Change:
    """Return how to come to so many replicas: the newest leave first, the oldest come back first.

    Args:
        wanted: Places that are to train now.
        replicas: How many shall.
        limits: What the run can have.

    Raises:
        ConfigError: There cannot be so many, or so few.
    """
    now = sorted(wanted)
    if limits.elastic and replicas != len(now):
        raise ConfigError(
            f"{replicas} replicas of a run with step.batch elastic",
            "its steps are laid out for the replicas that it began with",
            "a batch that is constant, which needs no such layout",
        )
    if replicas < max(1, limits.min_replicas):
        raise ConfigError(
            f"{replicas} replicas", f"at least {max(1, limits.min_replicas)} (quorum.min_replicas)"
        )
    if replicas > limits.num_leaves:
        raise ConfigError(
            f"{replicas} replicas for a step of {limits.num_leaves} leaves",
            f"at most {limits.num_leaves} have something to compute",
            "let the others be spares (--spares), or smaller leaves in a new run",
        )
    if replicas < len(now):
        return Change(drain=tuple(reversed(now[replicas:])))
    free = (place for place in itertools.count() if place not in now)
    return Change(start=tuple(itertools.islice(free, replicas - len(now))))


def may_leave(places: Iterable[int], counted: Iterable[int], *, min_replicas: int) -> None:
    """Raise unless a quorum is left without these.

    Args:
        places: Who would leave.
        counted: Who takes part in the present quorum and is not about to leave.
        min_replicas: Fewer take no step.

    Raises:
        ConfigError: Too few would be left.
    """
    going, there = set(places), set(counted)
    left, need = len(there - going), max(1, min_replicas)
    if going & there and left < need:
        names = ", ".join(f"replica-{place}" for place in sorted(going))
        raise ConfigError(
            f"{names} cannot leave: {left} of {need} needed would hold the state",
            "others that have learned it",
            "wait until more take part (danaus scale), or stop the run",
        )


def hosts_to_roll(num_hosts: int, done: Iterable[int], named: int | None) -> tuple[int, ...]:
    """Return the hosts that a roll has yet to restart, the one whose turn it is first."""
    if named is not None:
        return (named,)
    return tuple(host for host in range(num_hosts) if host not in set(done))


def next_host(
    own: int,
    load: Sequence[int | None],
    *,
    away_s: float | None,
    wait_s: float | None,
    leaves: bool,
) -> int:
    """Return the host on which a replica is to be tried next (H-4).

    Args:
        own: Its own.
        load: Of each host, how many other replicas live there; None: it cannot be used.
        away_s: Seconds for which its own is lost; None: it is not.
        wait_s: Seconds after which it starts on any other; None: it waits for its own.
        leaves: Its own was asked to end, and nobody here starts it again.
    """
    usable = {host: num for host, num in enumerate(load) if num is not None}
    if not usable:
        return own
    emptiest = min(usable, key=lambda host: usable[host])
    if leaves and usable[emptiest] == 0:
        return emptiest  # a spare: its own is not coming back by itself
    if wait_s is not None and away_s is not None and away_s >= wait_s:
        return emptiest
    return own
