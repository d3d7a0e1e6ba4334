"""What a step of a run is, whoever takes part in it (T-3).

Owns ``StepPlan``.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from danaus.core.errors import ConfigError
from danaus.ft.audit import NEVER, AuditPlan
from danaus.ft.stragglers import USUAL, PaceLimits


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
    """

    num_steps: int
    num_leaves: int
    leaf_size: int = 1
    elastic_replicas: int = 0
    veto: bool = True
    pace: PaceLimits = USUAL
    audit: AuditPlan = NEVER
    first_step: int = 0

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_leaves", "leaf_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", "at least 1")

    def leaves_of(self, num_replicas: int) -> int:
        """Return the leaves of a step that so many replicas share."""
        if not self.elastic_replicas or num_replicas >= self.elastic_replicas:
            return self.num_leaves
        return max(1, self.num_leaves * num_replicas // self.elastic_replicas)
