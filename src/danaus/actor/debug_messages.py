"""What is said of breakpoints: between a worker that stands at one, its host agent, and who looks.

The worker opens a session of its own for as long as it stands there; whoever looks opens another.
The agent stands between them, so that neither needs the controller.
"""

from __future__ import annotations

import msgspec

# -- from a worker to its agent -----------------------------------------------------------------


class StandAtBreakpoint(msgspec.Struct, frozen=True, tag="stand_at_breakpoint"):
    """An actor stands at a breakpoint for as long as this session lasts."""

    process_id: str
    actor: str
    where: str


class DebuggerSays(msgspec.Struct, frozen=True, tag="debugger_says"):
    """What the debugger at this session's breakpoint wrote; ``asks``: it waits for a line."""

    text: str
    asks: bool = False


class LeaveBreakpoint(msgspec.Struct, frozen=True, tag="leave_breakpoint"):
    """The actor goes on; a session that ends without this is one of a process that has died."""


# -- from those who look to an agent ------------------------------------------------------------


class WatchBreakpoints(msgspec.Struct, frozen=True, tag="watch_breakpoints"):
    """Answer with ``BreakpointsSeen``, now and whenever that changes."""


class AttachToBreakpoint(msgspec.Struct, frozen=True, tag="attach_to_breakpoint"):
    """Answer with ``Attached`` or ``NotAttached``; ``take``: away from who is attached now."""

    number: int
    take: bool = False


class WriteToDebugger(msgspec.Struct, frozen=True, tag="write_to_debugger"):
    """Give the debugger that this session is attached to a line of input."""

    number: int
    line: str


# -- from an agent ------------------------------------------------------------------------------


class LineForDebugger(msgspec.Struct, frozen=True, tag="line_for_debugger"):
    """To a worker at a breakpoint: the next line of input."""

    line: str


class Standing(msgspec.Struct, frozen=True):
    """One actor that stands at a breakpoint.

    Args:
        number: Its number on that host; none is used twice.
        process_id: Its process.
        actor: Its name and place.
        where: File and line.
        since_s: For how many seconds.
        attached: Whether somebody is attached to it.
    """

    number: int
    process_id: str
    actor: str
    where: str
    since_s: float
    attached: bool


class BreakpointsSeen(msgspec.Struct, frozen=True, tag="breakpoints_seen"):
    """Who stands at a breakpoint on this host."""

    standing: tuple[Standing, ...]


class Attached(msgspec.Struct, frozen=True, tag="attached"):
    """From now on all that the debugger says comes here; ``text``: the last of what it has said."""

    number: int
    text: str
    asks: bool


class NotAttached(msgspec.Struct, frozen=True, tag="not_attached"):
    """It is not there (any more), or another is attached to it."""

    number: int
    why: str


class DebuggerSaid(msgspec.Struct, frozen=True, tag="debugger_said"):
    """What a debugger wrote; ``asks``: it waits for a line."""

    number: int
    text: str
    asks: bool


class BreakpointOver(msgspec.Struct, frozen=True, tag="breakpoint_over"):
    """The session is no longer attached, because of ``why``; empty: the actor goes on."""

    number: int
    why: str = ""


class NoticeForPeople(msgspec.Struct, frozen=True, tag="notice_for_people"):
    """To the owner of a process: something that whoever sits before it should know."""

    text: str


ToAgentOfBreakpoints = (
    StandAtBreakpoint
    | DebuggerSays
    | LeaveBreakpoint
    | WatchBreakpoints
    | AttachToBreakpoint
    | WriteToDebugger
)
FromAgentOfBreakpoints = (
    LineForDebugger
    | BreakpointsSeen
    | Attached
    | NotAttached
    | DebuggerSaid
    | BreakpointOver
    | NoticeForPeople
)
