"""A whole run: replicas, their hosts and supervisor, the service, the disks, and the faults."""

from __future__ import annotations

from typing import Any

from tests.simulation.checkpoints import Checkpoints
from tests.simulation.engine import Engine, Violation
from tests.simulation.failures import kept
from tests.simulation.faults import Faults
from tests.simulation.member import BEAT_S, Member
from tests.simulation.model import NUM_LEAVES
from tests.simulation.monitor import Monitor
from tests.simulation.plans import MEMBER_FAULTS, Fault, Plan
from tests.simulation.repairs import Repairs, names, newest
from tests.simulation.service import FOLLOWED, HOST, Service, Session

from danaus.quorum.events import Saved
from danaus.quorum.messages import (
    Announcement,
    Heartbeat,
    Leave,
    MemberId,
    Refused,
    Register,
    Seat,
)

QUIET_S = 90.0  # how long a run may go on after the last fault is over
MOMENTS_END_S = 40.0  # no fault strikes later


class World(Repairs, Faults):
    """The run of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.engine = Engine(plan.seed, plan.slow, plan.drift)
        self.engine.on_moment = self.moment
        self.monitor = Monitor(self)
        self.checkpoints = Checkpoints(self)
        self.disk: Saved | None = None
        self.disk_full = 0
        self.damaged = False
        self.fenced_at: dict[MemberId, tuple[Service, float]] = {}
        self.leaving: set[str] = set()  # replicas that are to leave, or have left
        self.processes: dict[MemberId, Member] = {}
        self.incarnations: dict[str, int] = {}
        self.restarting: set[tuple[str, int]] = set()
        self.repairing: dict[tuple[str, int], int] = {}  # an incarnation -> the one to come
        self.num_repaired = 0
        self.pardoned: set[MemberId] = set()
        self.restarts_from: dict[str, float] = {}  # of a replica that cannot be started before
        self.lost_hosts: set[str] = set()
        self.lost_agents: set[str] = set()
        self.over_at = 0.0  # when the last fault's effect ends
        self.last_waiting = ""
        self.ended = False
        self.diverged: Refused | None = None
        self.pending = [fault for fault in plan.faults if fault.moment != "time"]
        self.service_host = HOST if plan.service_on is None else f"host-r{plan.service_on}"
        self.disk_owner: Service | None = None
        self.older: list[Service] = []  # services that live on though another was started
        self.service = self.new_service()
        for name in (f"r{index}" for index in range(plan.replicas)):
            self.start(name, f"host-r{plan.host_of(name)}")
        for fault in plan.faults:
            if fault.moment == "time":
                self.engine.at(fault.nth / 10, self.strike, fault, None)

    def new_service(self, *, resume: bool = False) -> Service:
        return Service(self, self.service_host, resume=resume)

    # -- the run ----------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end.

        Raises:
            Violation: A promise is broken, or the end is not reached in time.
        """
        self.engine.run(self.until)
        if not self.ended and self.diverged is None:
            stages = {m.name: m.machine.stage.value for m in self.living()}
            raise Violation("Q-6", f"no end: {stages}; service says: {self.last_waiting}")

    def until(self) -> float:
        if self.is_over() and all(m.finished or m.stopped or m.wedged for m in self.living()):
            self.ended = True
        return -1.0 if self.ended else self.over_at + QUIET_S

    def living(self) -> list[Member]:
        return [member for member in self.processes.values() if member.alive]

    def leaves_of(self, told: Announcement, who: MemberId) -> tuple[int, ...]:
        """Share the leaves in runs, as the members of ``told`` see it."""
        names = told.replica_ids
        index = names.index(who.replica_id)
        low, high = (NUM_LEAVES * i // len(names) for i in (index, index + 1))
        return tuple(range(low, high))

    # -- processes ----------------------------------------------------------------------

    def start(self, name: str, host: str) -> None:
        """Start all ranks of a replica under a new incarnation."""
        if self.ended:
            return
        if self.restarts_from.get(name, 0.0) > self.engine.now:
            self.engine.at(self.restarts_from[name], self.start, name, host)
            return
        self.incarnations[name] = incarnation = self.incarnations.get(name, 0) + 1
        for rank in range(self.plan.ranks):
            member = Member(self, MemberId(name, rank, incarnation), host)
            self.processes[member.who] = member
            member.later(BEAT_S, self.beat, member)

    def beat(self, member: Member) -> None:
        if member.session:
            member.session.to_service(Heartbeat(member.who, member.machine.epoch))
        member.later(BEAT_S, self.beat, member)

    def kill(self, member: Member, reason: str, *, silently: bool = False) -> None:
        """End a process.  ``silently``: its host is gone, no connection is closed."""
        member = newest(member)
        if not member.alive:
            return
        if member.immortal_until > self.engine.now and not silently:
            self.engine.at(member.immortal_until, self.kill, member, reason)
            return
        self.engine.note(member.name, f"dies: {reason}")
        member.alive = False
        if silently or self.engine.random.random() < 0.5:
            member.reset_links()
        if not silently:
            member.leave_group()
        if member.session:
            member.session.break_off(silently=silently)
        if not silently and member.host not in self.lost_agents:
            for service in (self.service, *self.older):
                for name in names(member):
                    delay = self.engine.delay()
                    self.engine.after(delay, service.run, self.watch, service, name.seat)
            self.engine.after(0.02, self.replace, member, member.host)

    def is_over(self) -> bool:
        return bool(self.monitor.ends) or self.service.machine.finished

    def exit(self, member: Member) -> None:
        """End a process that is done."""
        member.exited = member.alive
        self.kill(member, "it is done")

    def replace(self, member: Member, host: str, *, delay: float = 0.0) -> None:
        """Kill what is left of a replica's incarnation here and start the next (once)."""
        key = (member.who.replica_id, member.who.incarnation)
        if self.breaks_repair(member) or self.repair(member):
            return
        if key in self.restarting or self.incarnations[key[0]] != key[1] or self.is_over():
            return
        self.restarting.add(key)
        for other in self.living():
            if (other.who.replica_id, other.who.incarnation) == key and other.host == member.host:
                self.kill(other, "its replica lost a rank")
        if key[0] in self.leaving:
            return
        delay = delay or self.engine.random.uniform(0.1, 1.5)
        self.engine.after(delay, self.start, key[0], host)

    # -- the service and its watchers ---------------------------------------------------

    def connect(self, member: Member) -> None:
        """Dial the service until it answers."""
        if not member.alive or member.finished:
            return
        answering = [
            service
            for service in (self.service, *self.older)
            if service.alive
            and not service.stopped
            and not self.engine.apart_until(member.host, service.host)
        ]
        if not answering:
            member.later(0.3, self.connect, member)
            return
        service = answering[0] if len(answering) == 1 else self.engine.random.choice(answering)
        member.session = session = Session(service, member)
        session.to_service(Register(member.seat, member.standing()))
        if member.who.replica_id in self.leaving:
            self.say_leave(member)
        member.ask()

    def say_leave(self, member: Member) -> None:
        if member.session:
            member.session.to_service(Leave(member.who, "it makes room"))

    def watch(self, service: Service, seat: Seat) -> None:
        """Learn of a death from the process's host agent, when it can be asked."""
        member = self.processes[seat.member]
        lives = newest(member).alive
        if lives or not service.alive or service.knows_dead(seat.member):
            return
        held = self.engine.apart_until(service.host, member.host)
        if held:
            self.engine.at(held, service.run, self.watch, service, seat)
        elif member.host not in self.lost_agents:
            how = ("exited with code 0", True) if member.exited else ("killed by signal 9", False)
            self.engine.after(self.engine.delay(), service.run, service.died, seat.member, *how)

    def watch_older(self, service: Service, seat: Seat) -> None:
        """A process's replica has a past: ask about it where it ran."""
        for member in list(self.processes.values()):
            if member.who.replica_id == seat.member.replica_id:
                self.watch(service, member.seat)

    def tried_to_fence(self, member: MemberId) -> bool:
        """Tell whether a process was to be killed, and time enough was given."""
        service, at = self.fenced_at.get(member, (self.service, self.service.clock))
        return service.clock - at > 1.99

    def fence(self, service: Service, seat: Seat) -> None:
        self.fenced_at.setdefault(seat.member, (service, service.clock))
        member = self.processes[seat.member]
        held = self.engine.held_until(service.host, member.host)
        unheard = self.engine.apart_until(service.host, member.host)
        if member.host in self.lost_agents or unheard:
            service.later(2.0, service.out_of_reach, seat)
            if unheard and not held and member.host not in self.lost_agents:
                self.engine.after(self.engine.delay(), self.fenced, member, "fenced unheard")
            elif held and self.engine.random.random() < 0.5:  # the order may arrive late
                self.engine.at(held, self.fenced, member, "fenced late")
            return
        self.engine.after(self.engine.delay(), self.fenced, member, "fenced")
        self.engine.after(0.1, service.run, self.watch, service, seat)

    def crash_service(self, *, wipe: bool, resume: bool = False, span: float = 0.5) -> None:
        self.engine.note("service", "dies" + (" and loses its disk" if wipe else ""))
        if self.service.alive:
            self.service.alive = False
            for session in list(self.service.sessions.values()):
                session.break_off()
            self.engine.after(span, self.start_service, resume)
        for member in self.living():  # also those that are about to register
            if member.session:
                member.session.break_off()
        if wipe:
            self.disk = None
            self.monitor.wiped()

    def start_service(self, resume: bool) -> None:
        if not self.service.alive:
            self.engine.note("service", "starts")
            self.service = self.new_service(resume=resume)

    def second_service(self, host: str) -> None:
        """Start the service elsewhere though it lives on, and break half of its sessions."""
        self.engine.note("service", "is started elsewhere too")
        self.older.append(self.service)
        # It looks now and then whether its disk is still its own.
        self.service.later(
            self.engine.random.uniform(0.5, 10.0), self.end_service, self.service, FOLLOWED
        )
        self.service_host = host
        self.service = Service(self, host)
        for member in self.living():
            if member.session and self.engine.random.random() < 0.5:
                member.session.break_off()

    def end_service(self, service: Service, reason: str) -> None:
        """End a service that another has followed."""
        self.engine.note("service", f"ends: {reason}")
        service.alive = False
        if service in self.older:
            self.older.remove(service)
        for session in list(service.sessions.values()):
            session.break_off()
        for member in self.living():
            if member.session and member.session.service is service:
                member.session.break_off()

    def refused(self, member: Member, message: Refused) -> None:
        """Do what the refusal says."""
        if message.diverged:
            if self.monitor.flips < 2:
                raise Violation("Q-9", f"{message.reason} after {self.monitor.flips} flips")
            self.diverged = message
            self.ended = True
        elif "--resume" not in message.to_do:
            self.kill(member, f"it is refused: {message.reason}")
        elif self.service.alive:  # a person starts the service again, to resume
            self.monitor.resumed = True
            self.crash_service(wipe=False, resume=True)

    def disk_fails(self) -> bool:
        self.disk_full, failed = max(0, self.disk_full - 1), self.disk_full > 0
        return failed

    # -- faults ----------------------------------------------------------------------

    def moment(self, name: str, count: int, who: Any) -> None:
        for fault in self.pending:
            if fault.moment == name and fault.nth == count:
                self.pending.remove(fault)
                self.strike(fault, who if isinstance(who, Member) else None)
                return

    def strike(self, fault: Fault, at: Member | None) -> None:
        if self.engine.now > MOMENTS_END_S or self.ended:
            return
        span = fault.span / 10
        self.engine.note("fault", (fault.kind, fault.moment, at.name if at else None))
        if fault.kind in MEMBER_FAULTS:
            target = self.target(fault, at)
            if target is None or target.finished:
                return
            self.engine.note("fault", ("strikes", target.name))
            getattr(self, fault.method)(target, span)
        else:
            getattr(self, fault.method)(at, span)
        self.over_at = max(self.over_at, self.engine.now + span)

    def target(self, fault: Fault, at: Member | None) -> Member | None:
        if fault.who == -1 and at is not None:
            return at if at.alive else None
        living = sorted(self.living(), key=lambda member: member.who)
        return living[fault.who % len(living)] if living else None


def run(plan: Plan) -> World:
    """Run a plan to its end; a violation tells, and a file keeps, how to replay it."""
    world = World(plan)
    try:
        world.run()
    except Violation as violation:
        raise kept(violation, f"run({plan!r})") from violation
    return world
