"""What a replica of ``danaus bench ft`` is told.

Owns ``ReplicaJob``; what a replica does lies in ``app.bench_ft_replica``, which loads torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from danaus.ft.step_plan import Bits


@dataclass(frozen=True)
class ReplicaJob:
    """One life of one replica.

    Args:
        folder: Where all processes of the run meet.
        log: Where it writes a line for each step.
        name: Of the replica.
        incarnation: How often it was started before.
        width: Of the three layers.
        compute_s: What one microbatch waits for, as for a device that computes.
        num_leaves: Microbatches of a step, whoever computes them.
        num_steps: Steps of the run.
        bits: Whether sums have one order (``StepPlan``).
    """

    folder: str
    log: str
    name: str
    incarnation: int
    width: int = 256
    compute_s: float = 0.0
    num_leaves: int = 2
    num_steps: int = 1_000_000_000
    bits: Bits = "exact"
