"""What of a run can be hit: ``Start``, ``RunStatus``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a replica.

    Args:
        incarnation: Which.
        pids: Process ids by rank.
    """

    incarnation: int
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Process ids by replica, and the quorum service's."""

    replicas: dict[str, Start]
    service_pid: int | None
