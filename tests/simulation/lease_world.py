"""Two candidates for the service by a lease, each with a clock of its own.

Owns ``LeaseWorld``: the lease's store in simulated time, the candidates with the real lease
machine, and the service in each, which decides, saves and tells only while its lease is certain.
What a plan does to the service is done to the candidate that leads: it is stopped, killed, loses
its disk, or is cut off from the store.  Candidates share a disk or not, as the plan's seed says.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.simulation.engine import Process, Violation
from tests.simulation.failures import kept
from tests.simulation.member import Member
from tests.simulation.plans import Plan
from tests.simulation.service import Service, Session
from tests.simulation.world import World

from danaus.quorum import events as heard
from danaus.quorum import lease_events as lease
from danaus.quorum.leading import ANSWER_SHARE
from danaus.quorum.lease import LeaseMachine
from danaus.quorum.messages import Register
from danaus.quorum.state import QuorumMachine

LEASE_S = 3.0
STORE = "store"
DRIFT = 0.12
"""How much faster or slower than it should a candidate's clock may go."""
SILENT_S = 5.0  # a member that hears nothing of the service for so long dials another


class LeasedService(Service):
    """One turn of a candidate as the leader; ``order`` None: it has never led."""

    def __init__(self, world: LeaseWorld, candidate: Candidate, order: lease.Lead | None) -> None:
        Process.__init__(self, world.engine, "service", candidate.host)
        self.world, self.candidate = world, candidate
        self.sessions = {}
        self.given_up = set()
        self.wake = 0
        self.alive = order is not None
        self.waiting: deque[heard.Event] = deque()
        self.held: list[Any] = []
        self.busy = False
        saved = candidate.disk if order is not None and order.trusts_disk else None
        settings = heard.QuorumSettings(
            expected_replicas=world.plan.replicas,
            join_limit_s=15.0,
            hold_limit_s=6.0,
            replace_stragglers=True,
            least_term=order.term if order is not None else 0,
        )
        self.machine = QuorumMachine(
            settings,
            saved=saved,
            ledger_steps=world.monitor.ledger_steps(),
            ledger_term=world.monitor.ledger_term(),
            lost=order is not None and saved is None and world.has_begun,
            resume=world.take_resume() if order is not None else False,
        )
        if order is None:
            return
        self.later(0.001, self.take, heard.Started())
        told = saved.announcement if saved is not None else None
        seats = (*told.members, *(each.seat for each in told.learners)) if told is not None else ()
        for seat in seats:
            self.later(0.02, world.watch, self, seat)

    def take(self, event: heard.Event) -> None:
        """Decide nothing while the lease is not certain."""
        if self.alive:
            self.waiting.append(event)
            self.go_on_leading()

    def go_on_leading(self) -> None:
        """The lease is certain; it may not have been for a while."""
        if self.busy:
            return
        self.busy = True
        orders, self.held = self.held, []
        if orders:
            self.carry_out(orders)
        while self.waiting and self.alive and self.candidate.is_certain and not self.held:
            super().take(self.waiting.popleft())
        self.busy = False

    def carry_out(self, orders: list[Any]) -> None:
        while orders and self.alive and not self.stopped:
            if not self.candidate.is_certain:
                self.held = orders
                return
            order = orders.pop(0)
            if isinstance(order, heard.Persist) and not self.persist(order):
                return
            if not isinstance(order, heard.Persist):
                super().carry_out([order])
                if self.held or self.stopped:  # the rest waits behind what is left of this one
                    self.held = [*self.held, *orders]
                    return
        if orders and self.alive and self.stopped:
            self.resume_with(self.carry_out, orders)

    def persist(self, order: heard.Persist) -> bool:
        """Save; tell whether what follows may be told."""
        term = order.saved.announcement.epoch.term
        if not self.candidate.machine.covers(term):
            self.candidate.feed(lease.TermWanted(term))
            self.waiting.appendleft(heard.DiskFailed("the lease is yet to name its term"))
            return False
        if self.world.disk_fails():
            self.waiting.appendleft(heard.DiskFailed("no space left"))
            return False
        self.world.announced_by(self, order)
        self.candidate.save(order.saved)
        self.engine.moment("persisted", self)
        return True

    def announce(self, order: heard.Announce, rest: list[Any]) -> None:
        self.world.holds(self)
        super().announce(order, rest)


class Candidate(Process):
    """One life of a candidate."""

    def __init__(self, world: LeaseWorld, number: int, life: int) -> None:
        super().__init__(world.engine, f"candidate {number}.{life}", f"host-c{number}")
        self.world, self.number = world, number
        self.rate = 1.0 + DRIFT * world.engine.random.uniform(-1.0, 1.0)
        self.offset = world.engine.random.uniform(0.0, 1000.0)
        me = lease.Candidate(
            self.name, self.host, world.disk_id(number), "", LEASE_S, patient=number > 0
        )
        self.machine = LeaseMachine(me)
        self.service: LeasedService | None = None
        self.asked = self.woken = 0
        self.later(0.001, self.feed, lease.TimeCame())

    @property
    def disk(self) -> heard.Saved | None:
        return self.world.disks[self.world.disk_id(self.number)]

    def save(self, saved: heard.Saved) -> None:
        self.world.disks[self.world.disk_id(self.number)] = saved
        self.feed(lease.DiskHolds())

    @property
    def now(self) -> float:
        """What its own clock says."""
        return self.offset + self.rate * self.engine.now

    @property
    def is_certain(self) -> bool:
        return self.alive and self.machine.is_certain(self.now)

    def feed(self, event: lease.Event) -> None:
        if not self.alive:
            return
        for order in self.machine.handle(event, self.now):
            if isinstance(order, lease.WakeAt):
                self.woken += 1
                moment = max((order.at - self.offset) / self.rate, self.engine.now + 1e-3)
                self.engine.at(moment, self.run, self.wake, self.woken)
            elif isinstance(order, lease.Look | lease.Swap):
                self.asked += 1
                self.world.store.ask(self, order, self.asked)
                limit = ANSWER_SHARE * LEASE_S / self.rate
                self.later(limit, self.unanswered, self.asked)
            elif isinstance(order, lease.Lead):
                self.lead(order)
            else:
                self.follow(order)
        if self.is_certain and self.service is not None:
            self.service.go_on_leading()

    def wake(self, number: int) -> None:
        if number == self.woken:
            self.feed(lease.TimeCame())

    def answered(self, number: int, event: lease.Event) -> None:
        if number == self.asked:
            self.asked += 1
            self.feed(event)

    def unanswered(self, number: int) -> None:
        self.answered(number, lease.StoreFailed("no answer"))

    def lead(self, order: lease.Lead) -> None:
        self.engine.note(self.name, order)
        if not order.trusts_disk:
            self.world.monitor.wiped()
        self.service = LeasedService(self.world, self, order)
        self.world.service = self.service
        self.world.has_begun = True

    def follow(self, order: lease.Follow) -> None:
        self.engine.note(self.name, order)
        if self.service is not None:
            service, self.service = self.service, None
            self.world.end_service(service, order.reason)

    def stop(self) -> None:
        super().stop()
        if self.service is not None:
            self.service.stop()
            self.engine.after(SILENT_S, self.world.leave_silent, self.service)

    def go_on(self) -> None:
        super().go_on()
        if self.service is not None:
            self.service.go_on()

    def die(self) -> None:
        self.alive = False
        if self.service is not None:
            self.world.end_service(self.service, "its candidate is killed")


class Store:
    """Where the lease lies; what it is asked may be late, and may come to pass unanswered."""

    def __init__(self, world: LeaseWorld) -> None:
        self.world = world
        self.record: lease.LeaseRecord | None = None
        self.version = 0

    def ask(self, who: Candidate, order: lease.Look | lease.Swap, number: int) -> None:
        engine = self.world.engine
        there = engine.delay(who.host, STORE)
        held = engine.held_until(who.host, STORE)
        engine.at(max(engine.now + there, held), self.serve, who, order, number)

    def serve(self, who: Candidate, order: lease.Look | lease.Swap, number: int) -> None:
        event: lease.Event
        if isinstance(order, lease.Look):
            event = lease.Looked(self.entry())
        elif order.version == str(self.version):
            self.record, self.version = order.record, self.version + 1
            self.world.engine.note("store", order.record)
            event = lease.Swapped(self.entry())
        else:
            event = lease.Swapped(None)
        engine = self.world.engine
        back = max(engine.now + engine.delay(who.host, STORE), engine.held_until(STORE, who.host))
        engine.at(back, who.run, who.answered, number, event)

    def entry(self) -> lease.Entry:
        return lease.Entry(self.record, str(self.version))


class LeaseWorld(World):
    """The run of one plan under two candidates."""

    def __init__(self, plan: Plan) -> None:
        self.store = Store(self)
        self.shares_disk = plan.seed % 2 == 0
        self.disks: dict[str, heard.Saved | None] = {"d": None, "d0": None, "d1": None}
        self.has_begun = False
        self.wants_resume = False
        self.lives = 2
        self.turns: dict[str, int] = {}
        self.candidates: list[Candidate] = []
        super().__init__(plan)

    def new_service(self, *, resume: bool = False) -> Service:
        self.candidates = [Candidate(self, number, 0) for number in range(2)]
        return LeasedService(self, self.candidates[0], None)

    def disk_id(self, number: int) -> str:
        return "d" if self.shares_disk else f"d{number}"

    def take_resume(self) -> bool:
        wanted, self.wants_resume = self.wants_resume, False
        return wanted

    @property
    def leader(self) -> Candidate:
        """The candidate that led last."""
        service = self.service
        assert isinstance(service, LeasedService)
        return service.candidate

    # -- what must hold ----------------------------------------------------------------------

    def holds(self, service: LeasedService) -> None:
        """Q-3: whoever tells of a quorum is the only one that is certain of the lease."""
        certain = [each.name for each in self.candidates if each.is_certain]
        if certain != [service.candidate.name]:
            raise Violation("Q-3", f"{service.candidate.name} announces, {certain} are certain")

    def announced_by(self, service: LeasedService, order: heard.Persist) -> None:
        self.holds(service)
        self.monitor.persisted(order.saved)
        self.disk = order.saved

    # -- members ------------------------------------------------------------------------------

    def connect(self, member: Member) -> None:
        """Dial the candidates in turn until one that leads answers."""
        if not member.alive or member.finished:
            return
        turn = self.turns[member.name] = self.turns.get(member.name, 0) + 1
        candidate = self.candidates[turn % 2]
        service = candidate.service
        reached = candidate.alive and not candidate.stopped
        if not reached or service is None or self.engine.apart_until(member.host, service.host):
            member.later(0.2, self.connect, member)
            return
        member.session = session = Session(service, member)
        session.to_service(Register(member.seat, member.standing()))
        member.ask()

    def leave_silent(self, service: LeasedService) -> None:
        """Members that have heard nothing for long dial anew."""
        if service.alive and service.stopped:
            for session in list(service.sessions.values()):
                session.break_off()

    # -- what is done to the service ---------------------------------------------------------------

    def crash_service(self, *, wipe: bool, resume: bool = False, span: float = 0.5) -> None:
        """Kill the candidate that leads; it is started again."""
        leader = self.leader
        self.wants_resume = self.wants_resume or resume
        if wipe:
            self.disks[self.disk_id(leader.number)] = None
            self.monitor.wiped()
        if leader.alive:
            leader.die()
            self.lives += 1
            self.engine.after(span, self.start_again, leader.number, self.lives)

    def start_again(self, number: int, life: int) -> None:
        self.candidates[number] = Candidate(self, number, life)

    def second_service(self, _host: str) -> None:
        """Cut the candidate that leads off from the store, for longer than its lease."""
        span = self.engine.random.uniform(0.5, 4.0) * LEASE_S
        self.engine.wall(frozenset({self.leader.host}), frozenset({STORE}), span)
        self.over_at = max(self.over_at, self.engine.now + span)

    def fault_pause_service(self, _at: Member | None, span: float) -> None:
        leader = self.leader
        leader.stop()
        self.engine.after(span, leader.go_on)


def run_leased(plan: Plan) -> LeaseWorld:
    """Run a plan to its end; a violation tells, and a file keeps, how to replay it."""
    world = LeaseWorld(plan)
    try:
        world.run()
    except Violation as violation:
        raise kept(violation, f"run_leased({plan!r})") from violation
    return world
