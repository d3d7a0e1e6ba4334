"""What member processes say, as events of the quorum machine."""

from __future__ import annotations

from danaus.quorum.events import (
    Beaten,
    Event,
    FoundOut,
    JoinAsked,
    LeaveAsked,
    Registered,
    Renounced,
)
from danaus.quorum.messages import (
    Finding,
    FromReplica,
    Heartbeat,
    Join,
    Leave,
    MemberId,
    Register,
    Renounce,
)


def speaker(message: FromReplica) -> MemberId:
    """Return for which process a message speaks."""
    return message.seat.member if isinstance(message, Register | Join) else message.member


def event_of(message: FromReplica) -> Event:
    """Return what has happened when a message arrives."""
    match message:
        case Register():
            return Registered(message.seat, message.standing)
        case Heartbeat():
            return Beaten(message.member, message.standing)
        case Join():
            return JoinAsked(message)
        case Leave():
            return LeaveAsked(message.member, message.reason)
        case Renounce():
            return Renounced(message.member, message.reason)
        case Finding():
            return FoundOut(message)
