"""One try of one step, as the loop that computes sees it.

Owns which leaves this replica computes and the fold of their gradients into partial sums (T-4).
Leaves are handed out in order, each exactly once per attempt; a leaf that was handed out must be
added before the next one.  One of another replica may follow, to be compared and not folded (T-8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from danaus.collectives.fingerprint import digest
from danaus.collectives.folding import Leaves
from danaus.core.clock import MonotonicClock
from danaus.core.errors import ConfigError
from danaus.ft.audit import Audited


@dataclass(frozen=True, slots=True)
class Leaf:
    """A fixed run of microbatches, computed by one replica and accumulated left to right."""

    index: int
    microbatches: range


class Attempt:
    """The share of this replica in one try of one step.

    Args:
        step: The step that is tried; committing it makes it the committed step.
        run: Indices of the leaves of this replica.
        leaf_size: Microbatches per leaf.
        folder: Where gradients are folded.
        audited: A leaf whose digest is asked for; computed besides where it is not in ``run``.
        stopped: Tells, the same to every rank of the replica, whether to stop before a leaf.
    """

    def __init__(
        self,
        step: int,
        run: range,
        *,
        leaf_size: int,
        folder: Leaves,
        stopped: Callable[[int], bool],
        audited: int | None = None,
    ) -> None:
        self.step = step
        self.run = run
        self.refusal = ""
        self.stopped_early = False
        self._leaf_size = leaf_size
        self._folder = folder
        self._stopped = stopped
        self._audited = audited
        self._indices = list(run)
        if audited is not None and audited not in run:
            self._indices.append(audited)
        self.audits: tuple[Audited, ...] = ()
        self._num_added = 0
        self._clock = MonotonicClock()
        self._given_at = self._spent_s = 0.0

    def leaves(self) -> Iterator[Leaf]:
        """Hand out this replica's leaves; ends early when the quorum of this attempt has ended.

        Raises:
            ConfigError: The last one was not added.
        """
        for num_given, index in enumerate(self._indices):
            if self._stopped(index):
                self.stopped_early = True
                return
            first = index * self._leaf_size
            self._given_at = self._clock.now()
            yield Leaf(index, range(first, first + self._leaf_size))
            if self._num_added != num_given + 1 and not self.refusal:
                raise ConfigError(
                    f"leaf {index} of step {self.step} was not added",
                    "add() for each leaf before the next, once",
                    "call refuse(reason) where a step must not be committed",
                )

    def add(self, leaf: Leaf, gradient_P: torch.Tensor, *, waited_s: float = 0.0) -> None:
        """Fold one leaf's gradient in.

        Args:
            leaf: As handed out by ``leaves``.
            gradient_P: Sum of the token losses' gradients over the leaf, ``[P]``, float32; read
                before this returns.
            waited_s: What of the time since the leaf was handed out went into waiting for other
                ranks of the replica, in seconds.
        """
        self._spent_s += max(0.0, self._clock.now() - self._given_at - waited_s)
        is_mine = leaf.index in self.run
        if leaf.index == self._audited:
            self.audits = (Audited(leaf.index, digest(gradient_P), is_mine),)
        if is_mine:
            self._folder.add(leaf.index, gradient_P)
        self._num_added += 1

    def refuse(self, reason: str) -> None:
        """Make this member refuse the step; nobody commits it."""
        self.refusal = self.refusal or reason

    @property
    def pace_s(self) -> float:
        """What a leaf took so far, in seconds; 0: none was computed."""
        return self._spent_s / self._num_added if self._num_added else 0.0

    @property
    def complete(self) -> bool:
        """Tell whether every leaf that was handed out was added."""
        return self._num_added == len(self._indices)
