"""Who passes on to whom what goes to many: a tree over hosts, then over processes (A-11).

Pure: processes are whatever the caller takes for them.  What travels, and what becomes of a
branch whose process dies, is ``casting``'s matter.

Invariants:
    Every place stands in exactly one branch.
    Nobody, the sender included, passes on to more than ``FAN_OUT`` others.
    A branch of several hosts is split between hosts before it is split within one.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

FAN_OUT = 16
DIRECT = 64
"""So many processes are sent to directly: passing on would cost them more than it saves."""

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True)
class Branch(Generic[P]):
    """What one process is sent.

    Args:
        process: Which.
        points: Those that live there.
        below: What it passes on.
    """

    process: P
    points: tuple[int, ...]
    below: tuple[Branch[P], ...] = ()

    @property
    def all_points(self) -> tuple[int, ...]:
        """Those that live there or are reached through it."""
        return (*self.points, *(at for each in self.below for at in each.all_points))


@functools.lru_cache(maxsize=128)
def plan(places: tuple[tuple[Hashable, P], ...], fan_out: int = FAN_OUT) -> tuple[Branch[P], ...]:
    """Return what the sender sends, to at most ``fan_out`` processes.

    Args:
        places: Of each point, its host and its process.
        fan_out: How many anybody sends to at most; at least 1.
    """
    hosts: dict[Hashable, dict[P, list[int]]] = {}
    for at, (host, process) in enumerate(places):
        hosts.setdefault(host, {}).setdefault(process, []).append(at)
    return _branches([list(each.items()) for each in hosts.values()], fan_out)


def _branches(hosts: list[list[tuple[P, list[int]]]], fan_out: int) -> tuple[Branch[P], ...]:
    if sum(map(len, hosts)) <= fan_out:
        return tuple(Branch(process, tuple(at)) for host in hosts for process, at in host)
    if len(hosts) > 1:
        groups = _split(hosts, fan_out)
    else:
        groups = [[part] for part in _split(hosts[0], fan_out)]
    return tuple(_branch(group, fan_out) for group in groups)


def _branch(hosts: list[list[tuple[P, list[int]]]], fan_out: int) -> Branch[P]:
    (process, points), *others = hosts[0]
    rest = [others, *hosts[1:]] if others else hosts[1:]
    return Branch(process, tuple(points), _branches(rest, fan_out))


T = TypeVar("T")


def _split(items: list[T], num_parts: int) -> list[list[T]]:
    """Return ``items`` in at most so many runs, whose lengths differ by one at most."""
    num = min(num_parts, len(items))
    size, larger = divmod(len(items), num)
    parts, start = [], 0
    for number in range(num):
        end = start + size + (number < larger)
        parts.append(items[start:end])
        start = end
    return parts
