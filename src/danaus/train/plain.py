"""The same training without anyone else: the reference that a disturbed run is held against.

Owns the plain loop: one process computes every leaf, sums them along the tree, applies.
"""

from __future__ import annotations

from collections.abc import Callable

from danaus.collectives.folding import LeafFolder
from danaus.core.errors import ConfigError
from danaus.train.trainer import StepResult, Trainer


def plain_step(trainer: Trainer, folder: LeafFolder) -> StepResult:
    """Take one step alone.

    Args:
        trainer: One process, or every rank of one replica together.
        folder: Keeps the partial sums; ``LeafFolder(trainer.num_elements)``.
    """
    step, num_leaves = trainer.step + 1, trainer.num_leaves
    folder.begin(range(num_leaves), num_leaves)
    for leaf in range(num_leaves):
        folder.add(leaf, trainer.compute_leaf(step, trainer.leaf_microbatches(leaf)))
    (flat,) = folder.partials()
    refusal = trainer.check(flat)
    if refusal is not None:
        raise ConfigError(f"step {step}: {refusal}", "", "lower optim.lr or look at the data")
    return trainer.apply(step, flat, trainer.place.gather(trainer.measure(flat)))


def run_plain(
    trainer: Trainer, num_steps: int, on_step: Callable[[StepResult], None] | None = None
) -> str:
    """Take ``num_steps`` more steps alone; return the state's SHA-256 after them."""
    folder = LeafFolder(trainer.num_elements)
    for _ in range(num_steps):
        result = plain_step(trainer, folder)
        if on_step is not None:
            on_step(result)
    return trainer.sha256()
