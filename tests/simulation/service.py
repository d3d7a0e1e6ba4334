"""The simulated quorum service: the real quorum machine in a shell of simulated time and disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation.engine import Link, Process, Violation

from danaus.quorum import events as heard
from danaus.quorum.messages import (
    AbortExchange,
    Announcement,
    ChangePending,
    Heartbeat,
    Join,
    Leave,
    MemberId,
    Refused,
    Register,
    Released,
    Renounce,
    Seat,
    Waiting,
)
from danaus.quorum.state import QuorumMachine

FOLLOWED = "another service keeps its disk"
HOST = "service"
"""Where it lives, unless a world says otherwise."""


class Session:
    """A member's connection with the service: in order both ways, until it breaks."""

    def __init__(self, service: Service, member: Any) -> None:
        self.service = service
        self.member = member
        self._up = Link(service.engine, member.host, service.host)
        self._down = Link(service.engine, service.host, member.host)
        self.broken = False

    def to_service(self, message: Any) -> None:
        self._up.send(self._arrive, self.service, self.service.hear, (self, message))

    def to_member(self, message: Any) -> None:
        self._down.send(self._arrive, self.member, self._hand_over, (message,))

    def _arrive(self, at: Process, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        at.run(act, *args)
        if self.member.echoing:  # and once more, behind what came after it
            at.later(at.engine.random.uniform(0.0, 1.0), act, *args)

    def _hand_over(self, message: Any) -> None:
        # A client that has dialled again never reads what is left of an older session.
        if self.member.session is self:
            self.member.hear(message)

    def break_off(self, *, silently: bool = False) -> None:
        """Lose what is in flight; both ends notice, unless the member's host is gone."""
        if self.broken:
            return
        self.broken = True
        self._up.cut = self._down.cut = True
        engine = self.service.engine
        engine.after(engine.delay(), self.member.run, self._member_notices)
        if not silently:
            engine.after(engine.delay(), self.service.run, self._service_notices)

    def _member_notices(self) -> None:
        if self.member.session is self:
            self.member.session = None
            self.member.world.connect(self.member)

    def _service_notices(self) -> None:
        who = self.member.who
        if self.service.sessions.get(who) is self:
            del self.service.sessions[who]
            self.service.take(heard.Disconnected(who))


class Service(Process):
    """One life of the service."""

    def __init__(self, world: Any, host: str, *, resume: bool = False) -> None:
        super().__init__(world.engine, "service", host)
        self.world = world
        self.sessions: dict[MemberId, Session] = {}
        self.given_up: set[MemberId] = set()  # names, as far as it was told
        self.wake = 0
        world.disk_owner = self
        settings = heard.QuorumSettings(
            expected_replicas=world.plan.replicas,
            join_limit_s=15.0,
            hold_limit_s=6.0,
            replace_stragglers=True,
        )
        # Whoever starts the service knows whether it has run before in this run folder.
        self.machine = QuorumMachine(
            settings,
            saved=world.disk,
            ledger_steps=world.monitor.ledger_steps(),
            resume=resume,
            ledger_term=world.monitor.ledger_term(),
            lost=world.disk is None and world.monitor.wipes > 0,
        )
        self.later(0.001, self.take, heard.Started())
        if world.disk:
            told = world.disk.announcement
            for seat in (*told.members, *(learner.seat for learner in told.learners)):
                self.later(0.02, world.watch, self, seat)

    # -- what it hears ----------------------------------------------------------------------

    def hear(self, session: Session, message: Any) -> None:
        if session.broken:
            return
        if isinstance(message, Register | Join):
            self.given_up.update(message.seat.formerly)
        if isinstance(message, Register):
            self.sessions[message.seat.member] = session
            self.take(heard.Registered(message.seat, message.standing))
            self.world.watch_older(self, message.seat)
        elif isinstance(message, Join):
            self.engine.note("service", message)
            self.engine.moment("join heard", session.member)
            self.run(self.take, heard.JoinAsked(message))
        elif isinstance(message, Heartbeat):
            self.take(heard.Beaten(message.member, message.standing))
        elif isinstance(message, Renounce):
            self.given_up.add(message.member)
            self.take(heard.Renounced(message.member, message.reason))
        elif isinstance(message, Leave):
            self.take(heard.LeaveAsked(message.member, message.reason))

    def take(self, event: heard.Event) -> None:
        if not self.alive:
            return
        if not isinstance(event, heard.Beaten | heard.TimePassed | heard.JoinAsked):
            self.engine.note("service", event)
        orders = self.machine.handle(event, self.clock)
        if any(isinstance(order, heard.Persist) for order in orders):
            self.engine.moment("deciding", self)
        self.carry_out(list(orders))

    def carry_out(self, orders: list[Any]) -> None:
        """Carry out one by one; what kills or stops the service between two takes the rest."""
        while orders and self.alive:
            if self.stopped:
                self.resume_with(self.carry_out, orders)
                return
            order = orders.pop(0)
            if not isinstance(order, heard.WakeAt | heard.TellWaiting):
                self.engine.note("service", order)
            if isinstance(order, heard.Persist) and self.world.disk_owner is not self:
                self.world.end_service(self, FOLLOWED)
                return
            if isinstance(order, heard.Persist) and self.world.disk_fails():
                self.take(heard.DiskFailed("no space left"))
                return
            if isinstance(order, heard.Announce):
                self.announce(order, orders)
                return
            getattr(self, "do_" + type(order).__name__)(order)

    # -- what it does ----------------------------------------------------------------------

    def do_Persist(self, order: heard.Persist) -> None:  # noqa: N802
        self.world.monitor.persisted(order.saved)
        self.world.disk = order.saved
        self.engine.moment("persisted", self)

    def announce(self, order: heard.Announce, rest: list[Any]) -> None:
        """Tell one after another, so that a crash leaves some untold."""
        self.world.monitor.announcing(order.announcement)
        self.carry_out([*(_Tell(order.announcement, member) for member in order.to), *rest])

    def do__Tell(self, order: _Tell) -> None:  # noqa: N802
        self.tell((order.member,), order.announcement)
        self.engine.moment("announcing", self.world.processes[order.member])

    def do_NotifyPending(self, order: heard.NotifyPending) -> None:  # noqa: N802
        self.tell(order.members, order.message)

    def do_Abort(self, order: heard.Abort) -> None:  # noqa: N802
        self.tell(order.members, order.message)

    def do_TellWaiting(self, order: heard.TellWaiting) -> None:  # noqa: N802
        self.world.last_waiting = order.reason
        self.tell((order.member,), Waiting(order.reason))

    def do_Refuse(self, order: heard.Refuse) -> None:  # noqa: N802
        self.tell(order.members, order.message)

    def do_Release(self, order: heard.Release) -> None:  # noqa: N802
        self.tell(order.members, order.message)

    def do_NoteDivergence(self, order: heard.NoteDivergence) -> None:  # noqa: N802
        if not self.world.monitor.flips:
            raise Violation("Q-9", f"divergence without a flip: {order.fingerprints}")
        self.world.monitor.diverged = True
        if order.step == 0 and not _has_majority(order.fingerprints.values()):
            self.world.monitor.alone = True  # before the first step nobody can tell who is right

    def do_NoteFinding(self, order: heard.NoteFinding) -> None:  # noqa: N802
        """Writing it down was all there was to do."""

    def do_ProbeProcess(self, order: heard.ProbeProcess) -> None:  # noqa: N802
        self.world.watch(self, order.seat)

    def do_Fence(self, order: heard.Fence) -> None:  # noqa: N802
        if order.seat.member in self.given_up:
            raise Violation("H-3", f"{order.seat.member} is fenced, which has given its name up")
        self.world.fence(self, order.seat)

    def do_Pardon(self, order: heard.Pardon) -> None:  # noqa: N802
        self.world.pardoned.add(order.seat.member)

    def do_WakeAt(self, order: heard.WakeAt) -> None:  # noqa: N802
        self.wake += 1
        self.later(max(order.at - self.clock, 1e-3), self.woken, self.wake)

    def leap(self, span: float) -> None:
        super().leap(span)
        self.later(0.0, self.take, heard.TimePassed())

    def woken(self, wake: int) -> None:
        if wake == self.wake:
            self.take(heard.TimePassed())

    def tell(
        self,
        members: tuple[MemberId, ...],
        message: Announcement | ChangePending | AbortExchange | Waiting | Refused | Released,
    ) -> None:
        for member in members:
            if session := self.sessions.get(member):
                session.to_member(message)

    def knows_dead(self, member: MemberId) -> bool:
        return member in self.machine._s.roster.dead

    def died(self, member: MemberId, reason: str, clean: bool) -> None:
        self.take(heard.DeathReported(member, reason, clean))

    def out_of_reach(self, seat: Seat) -> None:
        self.take(heard.Unreachable(seat.member, "its host agent does not answer"))


def _has_majority(fingerprints: Iterable[str]) -> bool:
    known = Counter(fingerprints)
    return 2 * max(known.values()) > known.total()


class _Tell:
    """One announcement to one member."""

    def __init__(self, announcement: Announcement, member: MemberId) -> None:
        self.announcement = announcement
        self.member = member

    def __repr__(self) -> str:
        return f"Tell({self.announcement.epoch} to {self.member})"
