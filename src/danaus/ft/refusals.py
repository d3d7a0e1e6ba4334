"""When to give up a step whose sums are not fit to be applied.

Owns ``Refusals``.  Every member sees the same sums, so that all give up together.
"""

from __future__ import annotations

from danaus.core.errors import StepImpossible

MOST_TRIES = 3
"""One unfit try may be a fault's; the same thrice over is the training's own."""


class Refusals:
    """Counts how often in a row a step came out unfit."""

    def __init__(self) -> None:
        self._step = self._num = 0

    def count(self, step: int, refusal: str) -> None:
        """Count a try.

        Args:
            step: What was tried.
            refusal: Why it is not fit to be applied; empty if it is.

        Raises:
            StepImpossible: It is one too many.
        """
        again = bool(refusal) and step == self._step
        self._step, self._num = step, (self._num + 1 if again else int(bool(refusal)))
        if self._num == MOST_TRIES:
            raise StepImpossible(step=step, why=f"{refusal}, {MOST_TRIES} times in a row")
