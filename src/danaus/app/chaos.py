"""Plans of faults, and what a run has that they can hit.

Owns ``FaultPlan``, ``Fleet`` and ``check``.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from danaus.app.chaos_fault import Fault
from danaus.app.chaos_spec import read, write
from danaus.app.events import CONTROLLER
from danaus.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """What is done to a run on purpose.

    Args:
        faults: In order; of two that are due at once the first strikes first.
        seed: Chooses what the faults leave open.
    """

    faults: tuple[Fault, ...] = ()
    seed: int = 0

    @classmethod
    def parse(cls, *specs: str, seed: int = 0) -> FaultPlan:
        """Return the plan of these faults, each as ``chaos_spec`` reads it.

        Raises:
            ConfigError: One cannot be read.
        """
        return cls(tuple(read(spec) for spec in specs), seed)

    @property
    def specs(self) -> tuple[str, ...]:
        """Its faults as text, in their normal form."""
        return tuple(write(fault) for fault in self.faults)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What can be hit.

    Args:
        hosts: The host of each replica, by its place.
        num_ranks: Processes of each replica.
    """

    hosts: tuple[int, ...]
    num_ranks: int = 1

    @classmethod
    def of(cls, num_replicas: int, num_ranks: int = 1, *, num_hosts: int = 0) -> Fleet:
        """Return the fleet of a run.

        Args:
            num_replicas: Its replicas.
            num_ranks: Processes of each.
            num_hosts: Hosts that they lie on, counted around; 0: one for each.
        """
        places = range(num_replicas)
        return cls(tuple(place % (num_hosts or num_replicas) for place in places), num_ranks)

    @property
    def num_hosts(self) -> int:
        """How many hosts there are."""
        return max(self.hosts, default=-1) + 1


def check(plan: FaultPlan, fleet: Fleet) -> None:
    """Raise unless every target of the plan is there.

    Raises:
        ConfigError: One is not.
    """
    for fault in plan.faults:
        for key, num in (
            ("replica", len(fleet.hosts)),
            ("rank", fleet.num_ranks),
            ("host", fleet.num_hosts),
            ("peer", fleet.num_hosts),
        ):
            place = getattr(fault, key)
            if isinstance(place, int) and place >= num:
                last = f"{key} 0" if num == 1 else f"{key}s 0 to {num - 1}"
                raise ConfigError(
                    f"fault {fault.kind.value!r}: there is no {key} {place}", f"this run has {last}"
                )
        if fault.facts.hits == "link" and fleet.num_hosts < 2 and fault.peer != CONTROLLER:
            raise ConfigError(f"fault {fault.kind.value!r}: this run has one host", "it needs two")
