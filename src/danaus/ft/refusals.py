"""When to give up a step whose sums are not fit to be applied, and when a replica gives itself up.

Owns ``Refusals``.  Every member sees the same sums and the same ballots, so that all give up
together.  Numbers that are none may be one device's fault or the training's own: where only one
replica's share is unfit, twice over, that replica ends, and the others compute its leaves before
the step is given up.
"""

from __future__ import annotations

from danaus.core.errors import ShareUnfit, StepImpossible
from danaus.ft.step_events import Ballot, Votes
from danaus.ft.tally import blamed

MOST_TRIES = 3
"""One unfit try may be a fault's; the same thrice over is the training's own."""


class Refusals:
    """Counts how often in a row a step came out unfit."""

    def __init__(self) -> None:
        self._step = self._num = 0

    def count(self, step: int, *, unfit: bool) -> None:
        """Count a try."""
        again = unfit and step == self._step
        self._step, self._num = step, (self._num + 1 if again else int(unfit))

    def judge(self, mine: Ballot, votes: Votes, against: str) -> None:
        """Give up if this was one try too many.

        Args:
            mine: This member's ballot.
            votes: Every member's.
            against: What they say against the step.

        Raises:
            ShareUnfit: Others shall compute what this replica cannot.
            StepImpossible: The step was tried once too often.
        """
        if mine.vote != "refused":
            return
        why = f"{against}, {self._num} times in a row"
        if self._num >= MOST_TRIES:
            raise StepImpossible(step=self._step, why=why)
        others = {member.replica_id for member in votes} - {mine.member.replica_id}
        alone = mine.own_share and not others & blamed(votes.values())
        if alone and others and self._num == MOST_TRIES - 1:
            raise ShareUnfit(step=self._step, why=why)
