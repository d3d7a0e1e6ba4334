"""How a run ended, from how each of its replicas did.

Owns ``WorkerResult`` and ``RunResult`` and the judgement between them.  Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from danaus.core.errors import Diverged


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """How a worker ended: its last step, and the SHA-256 of every byte of its state."""

    step: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Args:
        step: Steps committed.
        sha256: Of the final state: each rank's, hashed together where there are several.
        replicas: The replicas that were there at the end.
        num_restarts: How often a replica was started again.
    """

    step: int
    sha256: str
    replicas: tuple[str, ...]
    num_restarts: int


def conclude(
    results: Mapping[str, tuple[WorkerResult, ...]], num_restarts: int
) -> RunResult | None:
    """Return how a run ended, None if no replica came to its end.

    A replica that was started again too late to learn the last step is told that the run is
    finished; its state is not the run's.

    Args:
        results: Each rank's, by replica; empty for one that was stopped.
        num_restarts: How often a replica was started again.

    Raises:
        Diverged: Replicas ended the last step with different states.
    """
    step = max((rank.step for ranks in results.values() for rank in ranks), default=0)
    hashes = {
        name: _combine(ranks)
        for name, ranks in results.items()
        if ranks and all(rank.step == step for rank in ranks)
    }
    if len(set(hashes.values())) > 1:
        reason = f"the final states differ, after step {step}"
        raise Diverged(step=step, fingerprints=hashes, reason=reason)
    if not hashes:
        return None
    return RunResult(step, next(iter(hashes.values())), tuple(sorted(hashes)), num_restarts)


def reached(ranks: tuple[WorkerResult, ...], step: int) -> bool:
    """Tell whether every rank of a replica has come to a step; one that was stopped has not."""
    return bool(ranks) and all(rank.step >= step for rank in ranks)


def _combine(ranks: tuple[WorkerResult, ...]) -> str:
    """Return one hash for a replica: its rank's, or all ranks' hashed together."""
    if len(ranks) == 1:
        return ranks[0].sha256
    return hashlib.sha256("".join(rank.sha256 for rank in ranks).encode()).hexdigest()
