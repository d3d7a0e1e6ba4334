"""Those who watch a participant: where it is, what it committed, what it lost.

Owns ``Observer`` (a base that does nothing) and ``Moment``.  Observers are called on the training
thread and delay it, for ``Moment.SERVING`` on the thread that serves; they must not raise.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from danaus.ft.ledger import Committed
from danaus.ft.work import StepResult
from danaus.quorum.messages import Epoch, MemberId
from danaus.wire.position import Phase


class Moment(enum.StrEnum):
    """Points between two phases at which a death matters most."""

    VOTED = "voted"
    """All ballots are in; nothing is applied."""
    APPLIED = "applied"
    """The step is applied; nobody was told yet."""
    LEARNING = "learning"
    """A part of the state has been fetched."""
    SERVING = "serving"
    """A part of the state has been served."""
    REPLAYED = "replayed"
    """A learner has applied a step that the members took while it loaded."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Who computed what in an epoch.

    Args:
        members: Every member process.
        runs: Leaves by replica.
    """

    members: tuple[MemberId, ...]
    runs: dict[str, range]


class Observer:
    """Hears of everything and does nothing; derive and override."""

    def entered(self, step: int, phase: Phase, number: int) -> None:
        """The process is in ``phase`` of ``step``; ``number`` counts inside the phase."""

    def moment(self, moment: Moment, step: int) -> None:
        """The process passes ``moment``."""

    def committed(self, line: Committed, result: StepResult) -> None:
        """A step was applied; ``line`` is in the ledger."""

    def refused(self, step: int, reason: str) -> None:
        """The members know from their votes that what they computed of a step is not sound."""

    def discarded(self, step: int, epoch: Epoch, reason: str) -> None:
        """A step was discarded; it is tried again."""

    def restoring(self, step: int, reason: str) -> None:
        """The run is about to go back to ``step``."""

    def restored(self, step: int, epoch: Epoch, reason: str) -> None:
        """The run went back to ``step``; its lineage is ``epoch.term`` from here on."""

    def restore_failed(self, step: int, reason: str) -> None:
        """The checkpoint of ``step`` cannot be restored; an older one is tried."""

    def leaving(self, step: int, epoch: Epoch | None, reason: str, *, save: bool) -> None:
        """This process leaves the run after ``step``, as it was asked to.

        ``save``: nobody else holds the state, and it is to be written to the disk now.
        """

    def finished(self, step: int, epoch: Epoch | None, *, save: bool) -> None:
        """All members have ended the run with one state, that of ``step``.

        ``save``: this replica is to see that it is on the disk.
        """

    def learning(self, step: int, donors: tuple[str, ...], *, trails: bool) -> None:
        """This process begins to learn the state of ``step``; the others go on if it ``trails``."""

    def donor_failed(self, step: int, donor: str, reason: str) -> None:
        """A donor of ``step`` was asked again, or others in its place."""

    def served(self, num_bytes: int) -> None:
        """So many bytes of state went to learners since this was last told."""

    def learned(self, step: int, num_bytes_by_donor: dict[str, int], duration_s: float) -> None:
        """The state of ``step`` came from peers."""

    def caught_up(
        self, step: int, num_steps: int, *, num_bytes_by_donor: dict[str, int], duration_s: float
    ) -> None:
        """The last ``num_steps`` up to ``step`` were applied from the peers' gradients.

        ``duration_s`` is since this process began to learn.
        """
