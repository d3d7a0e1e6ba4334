"""What the lease machine hears and orders, and what stands in a lease's store.

Owns these values; ``quorum.lease`` decides with them, ``quorum.leading`` carries them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

LEASE_S = 5.0
"""How long a lease counts by default."""


class LeaseRecord(msgspec.Struct, frozen=True):
    """What stands in the store.

    Args:
        holder: Which candidate, one name for each life of a process; empty: it was given back.
        address: Where that one listens.
        term: The highest term in which it may announce.
        number: Grows with each write.
        lease_s: How long it counts after it was last written.
        disk: The folder that holds what was announced last; empty: none is known to.
        process: The holder, as its own machine knows it.
    """

    holder: str
    address: str
    term: int
    number: int
    lease_s: float
    disk: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a store holds, and the version under which it may be replaced."""

    record: LeaseRecord | None
    version: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who would lead.

    Args:
        name: One for each life of a process.
        address: Where it listens.
        disk: The folder of its state, the same for all that share it.
        process: Of this machine.
        lease_s: How long its lease counts.
        patient: It leaves a lease that nobody ever held to another for a while.
    """

    name: str
    address: str
    disk: str
    process: str = ""
    lease_s: float = LEASE_S
    patient: bool = False


# -- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    """The store was read.  ``holder_dead``: the holder's machine, which is this one, says so."""

    entry: Entry
    holder_dead: bool = False


@dataclass(frozen=True, slots=True)
class Swapped:
    """The record was replaced as was ordered; None: it was not, another was faster."""

    entry: Entry | None


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store did not answer; what was ordered may come to pass all the same."""

    reason: str


@dataclass(frozen=True, slots=True)
class TermWanted:
    """The service would have announced in this term, and soon tries again in the next."""

    term: int


@dataclass(frozen=True, slots=True)
class DiskHolds:
    """This candidate's folder holds what was announced last."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """This candidate ends; another may lead at once."""


@dataclass(frozen=True, slots=True)
class TimeCame:
    """The moment of a ``WakeAt`` has come, or any other."""


Event = Looked | Swapped | StoreFailed | TermWanted | DiskHolds | Resigned | TimeCame


# -- instructions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Read the store; answer with ``Looked`` or ``StoreFailed``."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Replace what has this version; answer with ``Swapped`` or ``StoreFailed``."""

    record: LeaseRecord
    version: str


@dataclass(frozen=True, slots=True)
class Lead:
    """Begin to be the service, announcing in no term below ``term``."""

    term: int
    trusts_disk: bool


@dataclass(frozen=True, slots=True)
class Follow:
    """Be a standby; ``holder`` is where the leader listens, empty: nobody is known to lead."""

    holder: str
    reason: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send ``TimeCame`` at this moment if nothing else came first; replaces the one before."""

    at: float


Instruction = Look | Swap | Lead | Follow | WakeAt
