"""What a step of a run is, whoever takes part in it (T-3).

Owns ``StepPlan``.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from danaus.core.errors import ConfigError
from danaus.ft.audit import NEVER, AuditPlan
from danaus.ft.stragglers import USUAL, PaceLimits

Bits = Literal["exact", "off"]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What every step of the run is, whoever is alive (T-3).

    Args:
        num_steps: Steps of the run.
        num_leaves: Leaves of a step, the unit that replicas share.
        leaf_size: Microbatches of a leaf.
        elastic_replicas: 0: the batch is constant.  Else a step has all its leaves with so many
            replicas, and proportionally fewer with fewer.
        veto: Whether unequal fingerprints refuse a step (Q-9); the same at every member.
        pace: When a member counts as slower than the others; the same at every member.
        audit: Which leaves are computed twice and compared (T-8); the same at every member.
        first_step: Steps that were committed before this process began, from whose state it does.
        bits: ``exact``: gradients are summed in one order, whoever computed what (T-4).  ``off``:
            each replica adds its own up and sends one sum, never more than the bytes of a ring; the
            members still hold the same bits as each other, but other ones than another membership
            would.  The same at every member.
    """

    num_steps: int
    num_leaves: int
    leaf_size: int = 1
    elastic_replicas: int = 0
    veto: bool = True
    pace: PaceLimits = USUAL
    audit: AuditPlan = NEVER
    first_step: int = 0
    bits: Bits = "exact"

    def __post_init__(self) -> None:
        if self.bits not in ("exact", "off"):
            raise ConfigError(f"bits is {self.bits!r}", "exact or off")
        for name in ("num_steps", "num_leaves", "leaf_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", "at least 1")

    def leaves_of(self, num_replicas: int) -> int:
        """Return the leaves of a step that so many replicas share."""
        if not self.elastic_replicas or num_replicas >= self.elastic_replicas:
            return self.num_leaves
        return max(1, self.num_leaves * num_replicas // self.elastic_replicas)
