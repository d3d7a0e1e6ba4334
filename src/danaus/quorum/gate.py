"""What the quorum service asks before it decides, saves or announces anything.

Owns the protocol, and the gate of a service that is alone by other means: one whose controller sees
to it, or whose folder does.  Of several candidates ``quorum.leading`` opens and closes it.
"""

from __future__ import annotations

from typing import Protocol


class Gate(Protocol):
    """Whether this service may speak."""

    @property
    def is_open(self) -> bool:
        """Tell whether it is certain that no other service speaks now."""
        ...

    def covers(self, term: int) -> bool:
        """Tell whether it may announce in ``term``; if not, see to it that it soon may."""
        ...

    def saved(self) -> None:
        """Hear that the folder holds what is announced next."""
        ...


class OpenGate:
    """The gate of a service that has no rival."""

    is_open = True

    def covers(self, _term: int) -> bool:
        return True

    def saved(self) -> None:
        """Nobody else would read that folder."""
