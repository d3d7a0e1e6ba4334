"""When a host that waits to be joined works for whom: a pure machine.

Owns ``WaitingMachine``: who is taken on, who is turned away, and when a job is over because its
controller is gone.  ``waiting_host`` feeds it events and carries its instructions out.

A controller whose session is gone is asked for at the address where it listens.  Refused there,
it has ended: its machine says so.  Without an answer it may be cut off, and training goes on.

Invariants:
    One job at a time; the newest session of a job counts.
    P-4: nothing of an attached job outlives its controller by more than ``GONE_LOOKS`` looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LOOK_S = 1.0
"""How long between two looks for a controller whose session is gone."""
GONE_LOOKS = 3
"""So many refusals in a row mean that a controller has ended."""

Found = Literal["gone", "there", "unknown"]


# -- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Application:
    """Who wants the host.

    ``session`` is the number of the session that asks, ``controller`` where the controller
    listens; with ``adopt`` it is a later controller, for which what is here goes on.
    """

    session: int
    job: str
    who: str
    controller: str
    detached: bool = False
    alone_limit_s: float = 600.0
    adopt: bool = False


@dataclass(frozen=True, slots=True)
class JoinAsked:
    """A controller asks to be worked for."""

    by: Application


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """A controller says that its job is over."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class ControllerAway:
    """A session has lost its connection, or has ended."""

    session: int


@dataclass(frozen=True, slots=True)
class ControllerBack:
    """A session goes on over a new connection."""

    session: int


@dataclass(frozen=True, slots=True)
class ControllerLookedFor:
    """What became of a look for the controller."""

    session: int
    found: Found


@dataclass(frozen=True, slots=True)
class AgentGone:
    """The job's agent has ended without being asked to."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A moment named by ``WakeAt`` has come."""


Event = (
    JoinAsked
    | LeaveAsked
    | ControllerAway
    | ControllerBack
    | ControllerLookedFor
    | AgentGone
    | TimePassed
)


# -- instructions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginWork:
    """End what runs, then start an agent for the job of this session."""

    session: int


@dataclass(frozen=True, slots=True)
class KeepWork:
    """Let what runs go on, for the session; where nothing does, as ``BeginWork``."""

    session: int


@dataclass(frozen=True, slots=True)
class EndWork:
    """End the agent and all that it has started; tell ``session`` (0: nobody) once it is done."""

    reason: str
    session: int = 0


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Tell a session that it cannot have the host."""

    session: int
    why: str


@dataclass(frozen=True, slots=True)
class LookForController:
    """See whether anybody listens where the controller did; ``ControllerLookedFor`` answers."""

    session: int
    controller: str


@dataclass(frozen=True, slots=True)
class LetWorkEnd:
    """Have the agent end by itself once nobody works there any more."""


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the person at the host."""

    text: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send ``TimePassed`` then."""

    at: float


Instruction = (
    BeginWork | KeepWork | EndWork | TurnAway | LookForController | LetWorkEnd | Say | WakeAt
)


@dataclass(slots=True)
class _Tenant:
    """The job that is worked for."""

    by: Application
    absent_since: float | None = None
    refusals: int = 0


class WaitingMachine:
    """Decide for whom a host works."""

    def __init__(self) -> None:
        self._tenant: _Tenant | None = None

    @property
    def is_free(self) -> bool:
        """Tell whether the host waits to be joined."""
        return self._tenant is None

    def works_for(self, session: int) -> bool:
        """Tell whether the host works for the controller of this session."""
        return self._of(session) is not None

    def handle(self, event: Event, now: float) -> tuple[Instruction, ...]:
        """Return what is to be done, in order.

        Args:
            event: What happened.
            now: Seconds on one monotonic clock.
        """
        match event:
            case JoinAsked(by):
                return self._join(by, now)
            case LeaveAsked(session, reason):
                return self._leave(session, reason)
            case ControllerAway(session) if (tenant := self._of(session)) is not None:
                return self._away(tenant, now)
            case ControllerBack(session) if (tenant := self._of(session)) is not None:
                return self._back(tenant, now)
            case ControllerLookedFor(session, found) if (tenant := self._of(session)) is not None:
                return self._looked(tenant, found, now)
            case AgentGone():
                return self._agent_gone()
            case TimePassed():
                return self._look_again(now)
        return ()

    def _of(self, session: int) -> _Tenant | None:
        tenant = self._tenant
        return tenant if tenant is not None and tenant.by.session == session else None

    def _join(self, by: Application, now: float) -> tuple[Instruction, ...]:
        tenant = self._tenant
        if tenant is not None and tenant.by.job != by.job:
            why = f"it works for {tenant.by.who}"
            if tenant.absent_since is not None:
                away_s = now - tenant.absent_since
                why += f", which has been away for {away_s:.0f} s; try again a little later"
            return (TurnAway(by.session, why),)
        self._tenant = _Tenant(by)
        if tenant is not None and by.adopt:
            return (Say(f"joined by {by.who}: what it has here goes on"), KeepWork(by.session))
        again = " again: what it had here is ended first" if tenant is not None else ""
        return (Say(f"joined by {by.who}{again}"), BeginWork(by.session))

    def _leave(self, session: int, reason: str) -> tuple[Instruction, ...]:
        tenant = self._of(session)
        if tenant is None:
            return (TurnAway(session, "it does not work for this job"),)
        self._tenant = None
        return (EndWork(reason, session), Say(f"{tenant.by.who} is done here: {reason}"))

    def _away(self, tenant: _Tenant, now: float) -> tuple[Instruction, ...]:
        if tenant.absent_since is not None:
            return ()
        tenant.absent_since, tenant.refusals = now, 0
        look = (LookForController(tenant.by.session, tenant.by.controller), WakeAt(now + LOOK_S))
        if tenant.by.detached:
            return (Say(f"{tenant.by.who} is away; what it started goes on"), LetWorkEnd())
        return (Say(f"{tenant.by.who} is away; looking for it"), *look)

    def _back(self, tenant: _Tenant, now: float) -> tuple[Instruction, ...]:
        since, tenant.absent_since = tenant.absent_since, None
        return (Say(f"{tenant.by.who} is back after {now - (since or now):.1f} s"),)

    def _looked(self, tenant: _Tenant, found: Found, now: float) -> tuple[Instruction, ...]:
        if tenant.absent_since is None or tenant.by.detached:
            return ()
        if found != "unknown":
            tenant.refusals = tenant.refusals + 1 if found == "gone" else 0
        if tenant.refusals < GONE_LOOKS:
            return ()
        return self._over(f"its controller is gone since {now - tenant.absent_since:.1f} s")

    def _look_again(self, now: float) -> tuple[Instruction, ...]:
        tenant = self._tenant
        if tenant is None or tenant.absent_since is None or tenant.by.detached:
            return ()
        away_s = now - tenant.absent_since
        if away_s >= tenant.by.alone_limit_s:
            return self._over(f"cut off from its controller for {away_s:.0f} s")
        return (LookForController(tenant.by.session, tenant.by.controller), WakeAt(now + LOOK_S))

    def _over(self, reason: str) -> tuple[Instruction, ...]:
        tenant, self._tenant = self._tenant, None
        who = tenant.by.who if tenant is not None else "a job"
        return (Say(f"{who}: {reason}; ending what it started"), EndWork(reason))

    def _agent_gone(self) -> tuple[Instruction, ...]:
        tenant = self._tenant
        if tenant is None:
            return ()
        if tenant.absent_since is not None:
            return self._over("its agent has ended while it was away")
        return (Say(f"the agent that works for {tenant.by.who} has ended"),)
