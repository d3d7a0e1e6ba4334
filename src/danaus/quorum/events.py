"""What the quorum machine hears and what it orders.

Owns the settings, events and instructions of ``quorum.state``, and what is saved of it.
``quorum.service`` feeds the events and carries the instructions out, in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from danaus.core.errors import ConfigError
from danaus.quorum.messages import (
    AbortExchange,
    Announcement,
    ChangePending,
    Epoch,
    Finding,
    Join,
    MemberId,
    QuorumRecord,
    Refused,
    Released,
    Seat,
)


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Policy of the quorum.

    Args:
        min_replicas: Replicas without which no step is taken.
        expected_replicas: Replicas that the first quorum (and one after all are dead) waits for
            until the join limit; 0: only for those that are known.
        join_limit_s: How long a healthy replica that has not asked is waited for.
        heartbeat_limit_s: A process silent for longer is not healthy.
        reconnect_limit_s: The same for a process whose connection was closed, that no host agent
            can look after, and of which its machine does not say that it has ended.
        hold_limit_s: How long members wait at a boundary for a learner; doubled, at most three
            times, by each failure of the same learner.
        hold_share: Members wait for a learner that could catch up beside them where its lesson
            will take less than this part of the time by which it shortens a step; 0: never.
        fence_limit_s: After this, a process that could not be killed counts as out of reach.
        renounce_limit_s: How long a process that lost a sibling, and can outlive it, may take to
            give its name up before it is fenced (H-3).
        linger_s: How long members of the standing quorum may take to follow the first of them
            that turned to the service, before they are told to leave what they are blocked in.
        heal_divergence: False: any divergence stops the run.
        replace_stragglers: Whether a replica that is persistently slow makes room for another.
        least_term: Nothing new is announced in a term below it.
    """

    min_replicas: int = 1
    expected_replicas: int = 0
    join_limit_s: float = 60.0
    heartbeat_limit_s: float = 5.0
    reconnect_limit_s: float = 1.0
    hold_limit_s: float = 10.0
    hold_share: float = 1.0
    fence_limit_s: float = 2.0
    renounce_limit_s: float = 5.0
    linger_s: float = 1.0
    heal_divergence: bool = True
    replace_stragglers: bool = False
    least_term: int = 0

    def __post_init__(self) -> None:
        for name, least in (("min_replicas", 1), ("expected_replicas", 0), ("hold_share", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} is {getattr(self, name)}", f"at least {least}")


class Saved(msgspec.Struct, frozen=True):
    """What the service must not forget: the last quorum it announced, outcome included (Q-1).

    ``diverged`` lists the steps about which replicas once disagreed without a majority.
    """

    announcement: Announcement
    diverged: tuple[int, ...] = ()


# -- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The service has started; ``handle`` takes any first event for it."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A process has opened a session, for the first time or again."""

    seat: Seat
    standing: QuorumRecord | None = None


@dataclass(frozen=True, slots=True)
class Beaten:
    """A process is alive and stands in ``standing``."""

    member: MemberId
    standing: Epoch | None = None


@dataclass(frozen=True, slots=True)
class JoinAsked:
    """A process asks for the next quorum."""

    join: Join


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """A replica asks to be left out of the next quorum."""

    member: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class Renounced:
    """A process has given its name up (H-3)."""

    member: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class FoundOut:
    """Members have found something out about one of them."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class DeathReported:
    """A process is dead, as its host agent confirms; ``clean``: it exited with code 0."""

    member: MemberId
    reason: str
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A process could not be fenced: not waited for any more, but not known to be dead."""

    member: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A process's session broke: a reason to look at once (P-2)."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class HostGone:
    """A process's session broke, and the machine says that its host agent has ended."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class ListenerGone:
    """A process's session broke, and its machine refuses where it took its peers."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class HangSuspected:
    """The judge of progress holds a process to be hung (P-3)."""

    member: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class RebuildAsked:
    """The group is to be formed anew with the same members (P-3)."""

    reason: str


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """``Persist`` failed and nothing after it was carried out; it will be tried again."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The moment of a ``WakeAt`` has come, or any other."""


Event = (
    Started
    | Registered
    | Beaten
    | JoinAsked
    | LeaveAsked
    | Renounced
    | FoundOut
    | DeathReported
    | Unreachable
    | Disconnected
    | HostGone
    | ListenerGone
    | HangSuspected
    | RebuildAsked
    | DiskFailed
    | TimePassed
)


# -- instructions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Save, and only then carry out what follows; otherwise report ``DiskFailed``."""

    saved: Saved


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell ``to`` (sorted) of a quorum; ``again`` where it was announced before."""

    announcement: Announcement
    to: tuple[MemberId, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class NotifyPending:
    """Tell members that the membership is about to change."""

    members: tuple[MemberId, ...]
    message: ChangePending


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell members to leave what they are blocked in."""

    members: tuple[MemberId, ...]
    message: AbortExchange


@dataclass(frozen=True, slots=True)
class TellWaiting:
    """Tell one asker why there is no quorum yet."""

    member: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell askers that there will be no quorum for them."""

    members: tuple[MemberId, ...]
    message: Refused


@dataclass(frozen=True, slots=True)
class Release:
    """Tell askers that were to leave that they may end."""

    members: tuple[MemberId, ...]
    message: Released


@dataclass(frozen=True, slots=True)
class ProbeProcess:
    """Ask the process's host agent whether it lives; a death comes back as ``DeathReported``."""

    seat: Seat


@dataclass(frozen=True, slots=True)
class Fence:
    """Have the process killed; answer with ``DeathReported`` or ``Unreachable`` (Q-7)."""

    seat: Seat
    reason: str
    save_stacks: bool = False


@dataclass(frozen=True, slots=True)
class Pardon:
    """Do not have the process killed any more, if it was not yet: it has given that name up."""

    seat: Seat


@dataclass(frozen=True, slots=True)
class NoteDivergence:
    """Write down that replicas disagree about the state after a step (Q-9).

    ``fingerprints`` by replica; ``minority`` names those that learn anew, none if all restore.
    """

    step: int
    fingerprints: dict[str, str]
    minority: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NoteFinding:
    """Write down what members found out about one of them."""

    seat: Seat
    finding: Finding


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send ``TimePassed`` at this moment if nothing else came first; replaces the one before."""

    at: float


Instruction = (
    Persist
    | Announce
    | NotifyPending
    | Abort
    | TellWaiting
    | Refuse
    | Release
    | ProbeProcess
    | Fence
    | Pardon
    | NoteDivergence
    | NoteFinding
    | WakeAt
)
