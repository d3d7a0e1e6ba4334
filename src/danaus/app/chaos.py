"""Plans of faults, and what a run has that they can hit.

Owns ``FaultPlan``, ``Fleet`` and ``check``.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from danaus.app.chaos_fault import Fault, targets
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
        hosts: The host of each replica.
        num_ranks: Processes of each replica.
        places: The number of each replica, as in ``replica-4``; none: they are counted from 0.
        num_hosts: How many hosts there are, some without a replica; 0: as many as they live on.
    """

    hosts: tuple[int, ...]
    num_ranks: int = 1
    places: tuple[int, ...] = ()
    num_hosts: int = 0

    def __post_init__(self) -> None:
        set_once = object.__setattr__
        if not self.places:
            set_once(self, "places", tuple(range(len(self.hosts))))
        set_once(self, "num_hosts", max(self.num_hosts, max(self.hosts, default=-1) + 1))

    @classmethod
    def of(cls, places: Iterable[int], num_ranks: int = 1, *, num_hosts: int = 0) -> Fleet:
        """Return the fleet of a run.

        Args:
            places: The numbers of its replicas: after a drain, one may be left out.
            num_ranks: Processes of each.
            num_hosts: Hosts that they lie on, counted around; 0: each has its own.
        """
        named = tuple(places)
        hosts = tuple(place % num_hosts if num_hosts else place for place in named)
        return cls(hosts, num_ranks, named, num_hosts)


def check(plan: FaultPlan, fleet: Fleet) -> None:
    """Raise unless every target of the plan is there.

    Raises:
        ConfigError: One is not.
    """
    for fault in plan.faults:
        for key, there in (
            ("replica", fleet.places),
            ("rank", range(fleet.num_ranks)),
            ("host", range(fleet.num_hosts)),
            ("peer", range(fleet.num_hosts)),
        ):
            place = getattr(fault, key)
            if isinstance(place, int) and place not in there:
                raise ConfigError(
                    f"fault {fault.kind.value!r}: there is no {key} {place}",
                    f"this run has {_named(key, there)}",
                )
        if "replica" in targets(fault) and fault.host not in (None, *fleet.hosts):
            raise ConfigError(
                f"fault {fault.kind.value!r}: no replica lives on host {fault.host}",
                f"one lives on {_named('host', sorted(set(fleet.hosts)))}",
            )
        if fault.facts.hits == "link" and fleet.num_hosts < 2 and fault.peer != CONTROLLER:
            raise ConfigError(f"fault {fault.kind.value!r}: this run has one host", "it needs two")


def _named(key: str, there: Sequence[int]) -> str:
    """Return what is there, for a person: ``replicas 0 to 3``, ``replicas 0, 2, 3``."""
    if len(there) == 1:
        return f"{key} {there[0]}"
    if tuple(there) == tuple(range(len(there))):
        return f"{key}s 0 to {len(there) - 1}"
    return f"{key}s {', '.join(map(str, there))}"
