"""What faults cost a fleet: killed and hung replicas, and a coordinator that goes away.

Owns the course of each, the same for both sides of the comparison, and the figures that are
read from what replicas wrote down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from danaus.app.bench_figures import Figure, seen
from danaus.app.bench_ft_fleet import Commit, Fleet
from danaus.core.clock import Deadline

_POLL_S = 0.02
_FORM_LIMIT_S = 60.0
_GO_ON_LIMIT_S = 60.0
_WARM_UP_STEPS = 20
_SETTLE_STEPS = 15
_AFTER_STEPS = 5
AWAY_S = 2.0
"""How long the coordinator is away."""


@dataclass(frozen=True)
class Kill:
    """What one death cost.

    Args:
        gap_s: The survivors' longest time between two steps around it.
        reduced_s: A step of theirs without the victim.
        first_s: From the start of its successor to that one's first step.
        whole_s: From the death until all commit together again.
        entry_gap_s: The survivors' longest time between two steps as the successor came in.
    """

    gap_s: float
    reduced_s: float
    first_s: float | None = None
    whole_s: float | None = None
    entry_gap_s: float | None = None


def wait_until(condition: Callable[[], object], limit_s: float) -> bool:
    """Look until something holds; tell whether it came to hold."""
    deadline = Deadline.after(limit_s)
    while not deadline.passed:
        if condition():
            return True
        time.sleep(_POLL_S)
    return False


def form(fleet: Fleet) -> bool:
    """Start a whole fleet; tell whether all have taken steps together."""
    everyone = range(fleet.shape.replicas)
    fleet.start_coordinator()
    for replica in everyone:
        fleet.start(replica)
    return wait_until(lambda: _together(fleet, everyone, _WARM_UP_STEPS), _FORM_LIMIT_S)


# -- killed replicas ------------------------------------------------------------------------


def kill_some(fleet: Fleet, times: int, *, warm: bool, at_once: bool) -> list[Kill] | str:
    """Kill one replica after the other; return what it cost, or in words what went wrong.

    Args:
        fleet: One that has formed.
        times: How many are killed.
        warm: Whether their successors come from what stands ready.
        at_once: A successor is started at once, not when the others have gone on.
    """
    kills: list[Kill] = []
    for number in range(times):
        victim = number % fleet.shape.replicas
        told = _kill(fleet, victim, warm=warm, at_once=at_once)
        if isinstance(told, str):
            return f"after {number} deaths {told}"
        kills.append(told)
    return kills


def _kill(fleet: Fleet, victim: int, *, warm: bool, at_once: bool) -> Kill | str:
    everyone = range(fleet.shape.replicas)
    survivors = [replica for replica in everyone if replica != victim]
    if not wait_until(lambda: _together(fleet, everyone, _SETTLE_STEPS), _GO_ON_LIMIT_S):
        return "not all were back"
    died = fleet.kill(victim)
    if not at_once and not wait_until(lambda: _went_on(fleet, survivors, died), _GO_ON_LIMIT_S):
        return "the survivors took no step any more"
    started = time.monotonic()
    fleet.start(victim, warm=warm)
    if not wait_until(lambda: _together(fleet, everyone, _AFTER_STEPS), _GO_ON_LIMIT_S):
        return "its successor took no step"
    first = fleet.commits(victim)[0].time
    whole = max(_first_whole(fleet, replica, started) for replica in everyone)
    entry = [longest_gap(fleet.commits(each), started, whole) for each in survivors]
    until = whole if at_once else started
    gaps = [longest_gap(fleet.commits(each), died, until) for each in survivors]
    return Kill(
        gap_s=max(gaps),
        reduced_s=min(_usual_s(fleet.commits(each), died, until) for each in survivors),
        first_s=first - started,
        whole_s=whole - died,
        entry_gap_s=max(entry),
    )


def _together(fleet: Fleet, replicas: Iterable[int], num_steps: int) -> bool:
    """Tell whether each of these took its last steps with the whole fleet."""
    whole = fleet.shape.replicas
    for replica in replicas:
        last = fleet.commits(replica)[-num_steps:]
        if len(last) < num_steps or any(each.members != whole for each in last):
            return False
    return True


def _went_on(fleet: Fleet, replicas: Iterable[int], since: float) -> bool:
    fewer = fleet.shape.replicas - 1
    return all(
        sum(each.time > since and each.members <= fewer for each in fleet.commits(replica))
        >= _AFTER_STEPS
        for replica in replicas
    )


def _first_whole(fleet: Fleet, replica: int, since: float) -> float:
    whole = fleet.shape.replicas
    return next(c.time for c in fleet.commits(replica) if c.time > since and c.members == whole)


def longest_gap(commits: list[Commit], start: float, end: float) -> float:
    """Return the longest time between two steps of which a part lies between two moments."""
    pairs = list(zip(commits, commits[1:], strict=False))
    return max((b.time - a.time for a, b in pairs if b.time > start and a.time < end), default=0.0)


def _usual_s(commits: list[Commit], start: float, end: float) -> float:
    """Return the time of a step taken between two moments, as the shortest one took."""
    inside = [each for each in commits if start < each.time <= end + _POLL_S]
    pairs = list(zip(inside, inside[1:], strict=False))
    return min((b.time - a.time for a, b in pairs), default=0.0)


# -- hung replicas --------------------------------------------------------------------------


def hang_one(fleet: Fleet, limit_s: float) -> list[Figure]:
    """Hang the last replica of a fleet that has formed; tell what becomes of the others."""
    victim = fleet.shape.replicas - 1
    survivors = range(victim)
    struck = fleet.hang(victim)
    went_on = wait_until(
        lambda: _went_on(fleet, survivors, struck) or not any(fleet.is_alive(r) for r in survivors),
        limit_s,
    )
    alive = sum(fleet.is_alive(replica) for replica in survivors)
    if went_on and alive == len(survivors):
        gaps = [longest_gap(fleet.commits(each), struck, struck + limit_s) for each in survivors]
        return [Figure("survivors' gap", "s", (max(gaps),), "evicted, the rest go on")]
    if alive < len(survivors):
        return [seen("survivors' gap", f"{len(survivors) - alive} of {len(survivors)} others exit")]
    return [seen("survivors' gap", f"no step for {limit_s:.0f} s")]


# -- the coordinator ------------------------------------------------------------------------


def lose_coordinator(fleet: Fleet, newcomer: int) -> list[Figure]:
    """Take a fleet's coordinator away for a while, then let a new replica join."""
    everyone = range(fleet.shape.replicas)
    before = {replica: fleet.commits(replica)[-1].step for replica in everyone}
    struck = time.monotonic()
    fleet.kill_coordinator()
    time.sleep(AWAY_S)
    fleet.start_coordinator()
    back = time.monotonic()
    wait_until(lambda: _stepped_since(fleet, everyone, back + AWAY_S), 3 * AWAY_S)
    alive = [replica for replica in everyone if fleet.is_alive(replica)]
    figures = [
        seen("replicas that exit", f"{len(everyone) - len(alive)} of {len(everyone)}"),
        seen("steps lost", str(sum(_lost(fleet.commits(r), before[r]) for r in everyone))),
    ]
    if not alive:
        return figures
    end = time.monotonic()
    gaps = [longest_gap(fleet.commits(replica), struck, end) for replica in alive]
    figures.append(Figure("gap", "s", (max(gaps),)))
    return figures + _join(fleet, newcomer, alive)


def _join(fleet: Fleet, newcomer: int, others: list[int]) -> list[Figure]:
    started = time.monotonic()
    fleet.start(newcomer)
    if not wait_until(lambda: len(fleet.commits(newcomer)) >= _AFTER_STEPS, _GO_ON_LIMIT_S):
        return [seen("a new one's first step", f"none in {_GO_ON_LIMIT_S:.0f} s")]
    first = fleet.commits(newcomer)[0].time
    stall = max(longest_gap(fleet.commits(each), started, first + 1.0) for each in others)
    return [
        Figure("a new one's first step", "s", (first - started,)),
        Figure("the others' gap meanwhile", "s", (stall,)),
    ]


def _stepped_since(fleet: Fleet, replicas: Iterable[int], moment: float) -> bool:
    """Tell whether each has taken a step since, or has ended."""
    return all(
        not fleet.is_alive(replica) or fleet.commits(replica)[-1].time > moment
        for replica in replicas
    )


def _lost(commits: list[Commit], before: int) -> int:
    """Return how many committed steps were taken again."""
    steps = [each.step for each in commits if each.step >= before]
    return sum(b <= a for a, b in zip(steps, steps[1:], strict=False))
