"""What a candidate shows of itself: its turn, its lease, its quorum, its last decisions.

Owns the values of ``/status.json``; the page and the metrics are made of the same.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from danaus.quorum.status import QuorumStatus


class LeaseStatus(msgspec.Struct, frozen=True):
    """The lease as this candidate knows it.

    ``remaining_s`` is for how long it is still certain to lead, ``trouble`` why the lease's store
    cannot be asked.
    """

    holder: str
    address: str
    term: int
    lease_s: float
    remaining_s: float
    trouble: str


class LighthouseStatus(msgspec.Struct, frozen=True):
    """One candidate.  ``lease`` is None where there is none, ``quorum`` while it stands by."""

    turn: Literal["leads", "stands by", "is not certain"]
    address: str
    version: str
    up_s: float
    num_sessions: int
    lease: LeaseStatus | None
    quorum: QuorumStatus | None
    decisions: tuple[dict[str, Any], ...]
    counts: dict[str, int]
