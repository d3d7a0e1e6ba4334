"""What a member process holds between steps: a committed state, and checkpoints on the disk.

Owns the values; ``ft.step`` decides when they change.
"""

from __future__ import annotations

import msgspec

from danaus.quorum.messages import Epoch


class State(msgspec.Struct, frozen=True):
    """The committed state this process holds; ``fingerprint`` is empty where it is spoiled."""

    step: int
    fingerprint: str
    epoch: Epoch | None = None
    lineage_term: int = 0


SPOILED = State(0, "")


class Restorable:
    """The newest checkpoint that may be restored (Q-9, H-5).

    One that was written of a flipped bit must not be: a checkpoint counts once a vote has found
    all members to share the fingerprint that it was written with.

    Args:
        step: The newest that counted when the process started (0: the seed).
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self._written: dict[int, str] = {}

    def written(self, step: int, fingerprint: str) -> None:
        """Note a checkpoint that no vote has agreed on yet."""
        self._written[step] = fingerprint

    def agreed(self, step: int, fingerprint: str) -> None:
        """Note that all members were found to share this fingerprint of ``step``."""
        if self._written.pop(step, None) == fingerprint:
            self.step = step
        for older in [written for written in self._written if written < step]:
            del self._written[older]

    def reset(self, step: int) -> None:
        """Forget the checkpoints of a lineage that has ended or that cannot be loaded."""
        self._written.clear()
        self.step = step
