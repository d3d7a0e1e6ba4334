"""When a fault of a plan is due, and whom it hits: a machine without a clock and without chance.

Owns ``Schedule``, which is shown a run (``Seen``) and returns the faults that are due, resolved:
with an id, a target, the step and every parameter.  What a plan leaves open is chosen by its seed,
the fault's place in the plan and how often it has struck, so that the same plan hits the same
targets in the same order whatever the clock says.  Pure.

A fault that was due while nobody looked strikes once, not as often as it was due.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from danaus.app.chaos import FaultPlan, Fleet, check
from danaus.app.chaos_fault import Fault, targets

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a run.

    Args:
        step: Steps committed so far.
        now_s: Seconds since the plan began.
        all_back: Every replica is a member, and what was struck before is back.
    """

    step: int
    now_s: float
    all_back: bool = True


class Schedule:
    """Tell which faults of a plan are due.

    Args:
        plan: The faults.
        fleet: What can be hit.
        name: Of the plan; ids of its faults begin with it.

    Raises:
        ConfigError: A target of the plan is not there.
    """

    def __init__(self, plan: FaultPlan, fleet: Fleet, *, name: str = "chaos") -> None:
        check(plan, fleet)
        self._fleet, self._seed, self._name = fleet, plan.seed, name
        rules = [_Rule(place, fault) for place, fault in enumerate(plan.faults)]
        self.planned = tuple(
            self._resolve(rule, rule.fault.at_step or 0) for rule in rules if rule.fault.is_planned
        )
        """Faults that their victims are told of beforehand: these are never due."""
        self._rules = [rule for rule in rules if not rule.fault.is_planned]

    @property
    def is_over(self) -> bool:
        """Tell whether nothing will be due any more."""
        return all(rule.is_over for rule in self._rules)

    def handle(self, seen: Seen) -> tuple[Fault, ...]:
        """Return the faults that are due now, in the order of the plan.

        Of those that wait until all are back at most one strikes at a time.
        """
        due: list[Fault] = []
        all_back = seen.all_back
        for rule in self._rules:
            if rule.is_due(seen) and (all_back or not rule.fault.all_back):
                due.append(self._resolve(rule, seen.step))
                rule.struck(seen)
                all_back = False
        return tuple(due)

    def _resolve(self, rule: _Rule, step: int) -> Fault:
        fault, number = rule.fault, rule.num_struck
        facts, process = fault.facts, fault.process
        if facts.processes:
            process = fault.victim
        return dataclasses.replace(
            fault,
            **self._target(fault, f"{self._seed}/{rule.place}/{number}"),
            id=f"{self._name}-{rule.place + 1}.{number + 1}",
            at_step=step,
            after_s=None,
            after_steps=None,
            every_s=None,
            every_steps=None,
            times=None,
            all_back=False,
            process=process,
            where=fault.where or next(iter(facts.where), None),
            amount=fault.amount if fault.amount is not None else facts.amount,
            for_s=fault.for_s if fault.for_s is not None else facts.for_s,
        )

    def _target(self, fault: Fault, draw: str) -> dict[str, Any]:
        """Return whom a fault hits."""
        keys = targets(fault)
        if "replica" in keys:
            legal = [
                place
                for place, host in zip(self._fleet.places, self._fleet.hosts, strict=True)
                if fault.host in (None, host) and fault.replica in (None, place)
            ]
            ranks = range(self._fleet.num_ranks) if fault.rank is None else (fault.rank,)
            return {
                "host": None,
                "replica": choose(legal, f"{draw}/replica"),
                "rank": choose(ranks, f"{draw}/rank"),
            }
        if "host" in keys and fault.host is None:
            hosts = [h for h in range(self._fleet.num_hosts) if h != fault.peer]
            return {"host": choose(hosts, f"{draw}/host")}
        return {}


def choose(legal: Sequence[T], draw: str) -> T:
    """Return one of ``legal``; the same one for the same ``draw``, on any machine."""
    digest = hashlib.blake2b(draw.encode(), digest_size=8).digest()
    return legal[int.from_bytes(digest, "big") % len(legal)]


class _Rule:
    """One fault of the plan: how often it has struck, and when it comes next."""

    def __init__(self, place: int, fault: Fault) -> None:
        self.place, self.fault = place, fault
        self.num_struck = 0
        self._first_step: int | None = None
        self._next_step = 0
        self._next_s = 0.0

    @property
    def is_over(self) -> bool:
        times = self.fault.times or (None if self.fault.recurs else 1)
        return times is not None and self.num_struck >= times

    def is_due(self, seen: Seen) -> bool:
        if self._first_step is None:
            self._begin(seen)
        return not self.is_over and seen.step >= self._next_step and seen.now_s >= self._next_s

    def _begin(self, seen: Seen) -> None:
        """Count from the step at which the plan began."""
        self._first_step = seen.step
        fault = self.fault
        if fault.at_step is not None:
            self._next_step = fault.at_step
        elif fault.after_s is not None:
            self._next_s = fault.after_s
        elif fault.after_steps is not None:
            self._next_step = seen.step + fault.after_steps
        else:
            self._next_s = fault.every_s or 0.0
            self._next_step = seen.step + (fault.every_steps or 0)

    def struck(self, seen: Seen) -> None:
        """Set when it comes next: in its rhythm, though not at once for a beat that was missed."""
        fault = self.fault
        if not self.num_struck and (fault.at_step, fault.after_s, fault.after_steps) != _UNNAMED:
            self._next_s, self._next_step = seen.now_s, seen.step  # the rhythm begins here
        self.num_struck += 1
        if (every_s := fault.every_s) is not None:
            self._next_s = _next_beat(self._next_s, every_s, seen.now_s)
        if (every := fault.every_steps) is not None:
            missed = (seen.step - self._next_step) // every
            self._next_step += (missed + 1) * every


_UNNAMED = (None, None, None)


def _next_beat(last_s: float, every_s: float, now_s: float) -> float:
    beat_s = last_s + every_s
    return beat_s if beat_s > now_s else now_s + every_s - (now_s - last_s) % every_s
