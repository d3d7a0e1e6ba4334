"""A plan of faults as it is written for a real run, carried out in simulated time.

Owns ``ChaosWorld``: the product's own schedule tells which faults of a ``danaus.testing.FaultPlan``
are due; here stands what each of them means to processes, links and disks that are simulated.
Replica ``n`` lives on host ``n`` unless the plan of the run says otherwise; the quorum service
lives with the controller, apart from them, or on a host of the run.

What no machine of quorum, step or healing can see does nothing here: a gradient that is wrong
before it is summed (T-8), and the clock of the day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.engine import Process, Violation
from tests.simulation.failures import kept
from tests.simulation.member import Member
from tests.simulation.plans import Plan
from tests.simulation.world import World

from danaus.app.chaos_fault import Fault
from danaus.app.chaos_schedule import Schedule, Seen
from danaus.app.events import FaultKind
from danaus.testing import FaultPlan

LOOK_S = 0.1
SLICE_S = 0.2
AGENT_LIMIT_S = 5.0  # a host agent that is silent for longer counts as lost (P-2)
GREET_LIMIT_S = 4.0  # a service that does not answer for longer is killed by its keeper
NO_RESTARTS_S = 5.0  # until there is a controller again
NEW_NURSERY_S = 2.0

MOMENTS = {
    "join": "joined",
    "learn": "learning",
    "learning": "fetched",
    "replayed": "replayed",
    "serving": "serving",
    "hold": "forming",
    "compute": "computing",
    "forward": "computed",
    "reduce": "reducing",
    "vote": "ballot sent",
    "voted": "voted",
    "apply": "committing",
    "applied": "applied",
    "checkpoint": "applied",
}
"""The moment of a simulated step at which a fault of each phase strikes."""


class ChaosWorld(World):
    """The run of one plan, disturbed as a plan of faults says.

    Args:
        plan: The run.
        faults: What is done to it.
    """

    def __init__(self, plan: Plan, faults: FaultPlan) -> None:
        super().__init__(plan)
        self.schedule = Schedule(faults, plan.fleet)
        self.armed = list(self.schedule.planned)
        self.struck: list[Fault] = []
        self.missed: list[Fault] = []
        self.reached = 0
        self.engine.after(LOOK_S, self.look)

    def look(self) -> None:
        """Do what is due."""
        if self.ended:
            return
        reached = max((member.model.step for member in self.living()), default=0)
        if reached > self.reached:
            self.reached, self.over_at = reached, max(self.over_at, self.engine.now)
        for fault in self.schedule.handle(Seen(self.reached, self.engine.now, self.all_back())):
            if fault.at_phase is None:
                self.do(fault, None)
            else:
                self.armed.append(fault)
        self.engine.after(LOOK_S, self.look)

    def all_back(self) -> bool:
        """Tell whether every replica is a member, and nothing that was struck still lasts."""
        told = self.disk.announcement if self.disk is not None else None
        if told is None or told.hold or not self.engine.is_calm or not self.service.alive:
            return False
        whole = {m.who for m in self.living() if not m.stopped and m.machine.epoch == told.epoch}
        return whole == {seat.member for seat in told.members} and (
            len(whole) == self.plan.replicas * self.plan.ranks
        )

    def moment(self, name: str, count: int, who: Any) -> None:
        super().moment(name, count, who)
        if not isinstance(who, Member):
            return
        for fault in self.armed:
            at = MOMENTS[fault.at_phase or "compute"]
            if (
                at == name
                and self.is_target(fault, who)
                and who.model.step + 1 >= (fault.at_step or 0)
            ):
                self.armed.remove(fault)
                self.do(fault, who)
                return

    # -- whom --------------------------------------------------------------------------------

    def is_target(self, fault: Fault, member: Member) -> bool:
        names = (f"r{fault.replica}", fault.rank)
        return (member.who.replica_id, member.who.rank) == names

    def hosts(self, place: int | None) -> frozenset[str]:
        """Return the names that a host has had: one that takes its place is another."""
        everybody = {self.service.host, *(m.host for m in self.processes.values())}
        return frozenset(name for name in everybody if place in (None, _place_of(name)))

    def on_host(self, place: int | None) -> list[Member]:
        names = self.hosts(place)
        return [member for member in self.living() if member.host in names]

    # -- what --------------------------------------------------------------------------------

    def do(self, fault: Fault, at: Member | None) -> None:
        """Strike with a resolved fault."""
        if self.is_over() or self.ended:
            return
        victims = [at] if at else [m for m in self.living() if self.is_target(fault, m)]
        self.engine.note("fault", fault)
        if fault.facts.hits == "worker" and fault.victim == "worker" and not victims:
            self.missed.append(fault)
            return
        self.struck.append(fault)
        span = fault.for_s or 0.0
        self.over_at = max(self.over_at, self.engine.now + span)
        how, target = _HOW[fault.kind], victims[0] if victims else None
        how(self, fault, target, span)

    def kill_worker(self, _fault: Fault, target: Member, _span: float) -> None:
        self.kill(target, "killed")

    def hang(self, fault: Fault, target: Member | None, span: float) -> None:
        if target is None or fault.victim != "worker":
            self.hang_other(fault, span)
        elif fault.where in ("collective", "loader"):
            self.fault_wedge(target, span)
        else:
            if fault.where == "kernel":
                target.immortal_until = self.engine.now + (span or 5.0)
            self.fault_hang(target, span)
            if span:
                self.engine.after(span, target.go_on)

    def hang_other(self, fault: Fault, span: float) -> None:
        if fault.victim == "coordinator":
            self.stop_service(span)
        elif fault.victim == "controller":
            self.no_restarts(None, span or NO_RESTARTS_S)
        elif fault.victim == "nursery":
            self.no_restarts(fault.host, span or NEW_NURSERY_S)
        elif span and span < AGENT_LIMIT_S:
            self.quiet_agent(fault.host, span)
        else:
            self.lose_agents(fault, None, span)

    def stop_service(self, span: float) -> None:
        """Stop the service for a while; its keeper kills it if that is long."""
        service = self.service
        service.stop()
        if span and span < GREET_LIMIT_S:
            self.engine.after(span, service.go_on)
        else:
            self.engine.after(GREET_LIMIT_S, self.end_silent, service)

    def end_silent(self, service: Any) -> None:
        if self.service is service and service.alive and service.stopped:
            self.crash_service(wipe=False)

    def slow(self, fault: Fault, target: Member | None, span: float) -> None:
        """Stop a process for most of each slice of time, as is done to real ones."""
        share = 1 - 1 / (fault.amount or 2.0)
        ends = self.engine.now + span
        if fault.victim == "coordinator":
            self.slice(self.service, share, ends)
        elif fault.victim == "worker" and target is not None:
            self.slice(target, share, ends)
        else:
            self.no_restarts(fault.host, span)

    def slice(self, process: Process, share: float, ends: float) -> None:
        if self.engine.now >= ends or not process.alive or process.stopped:
            return
        process.stop()
        self.engine.after(SLICE_S * share, process.go_on)
        self.engine.after(SLICE_S, self.slice, process, share, ends)

    def partition(self, fault: Fault, _target: None, span: float) -> None:
        here = self.hosts(fault.host)
        there = self.hosts(fault.peer) - here
        self.engine.wall(here, there, span, one_way=fault.one_way)

    def harm(self, fault: Fault, _target: None, span: float) -> None:
        amount = fault.amount or 0.0
        for host in sorted(self.hosts(fault.host)):
            if fault.kind is FaultKind.LOSS:
                self.engine.harm(host, span, loss=min(0.9, amount / 100))
            else:
                self.engine.harm(host, span, longer=amount)

    def disk_full(self, fault: Fault, _target: Member, span: float) -> None:
        self.checkpoints.full_until[f"r{fault.replica}"] = self.engine.now + span

    def flip_bit(self, fault: Fault, target: Member, span: float) -> None:
        if fault.where in ("parameters", "optimizer"):
            self.fault_flip(target, span)
        elif fault.where == "sum":
            self.fault_missum(target, span)
        elif fault.where == "transfer":
            self.fault_garble_fetch(target, span)
        elif fault.where == "exchange":  # its checksum ends the connection
            self.fault_cut_peers(target, span)
        elif fault.where == "checkpoint":
            self.fault_damage_checkpoint(target, span)

    def nan(self, fault: Fault, target: Member, _span: float) -> None:
        """Have everybody find a sum that is none (gradient), or one a state that differs."""
        if fault.where == "parameters":
            self.fault_flip(target, 0.0)
            return
        group = target.group
        for member in group.members if group else (target.who,):
            if self.processes[member].alive:
                self.processes[member].refusing = True

    def clock_jump(self, fault: Fault, target: Member, _span: float) -> None:
        """Let every deadline of a worker pass at once."""
        if fault.where == "monotonic":
            target.run(target.broken, "the exchange's deadline passed")

    def kill_service(self, fault: Fault, _target: None, span: float) -> None:
        self.crash_service(wipe=fault.where == "disk", span=span or 0.3)

    def kill_controller(self, _fault: Fault, _target: None, _span: float) -> None:
        self.no_restarts(None, NO_RESTARTS_S)

    def kill_nursery(self, fault: Fault, _target: None, _span: float) -> None:
        self.no_restarts(fault.host, NEW_NURSERY_S)

    def no_restarts(self, place: int | None, span: float) -> None:
        """Start no process for a while, on one host or any."""
        until = self.engine.now + span
        for name in self.incarnations:
            if place is None or self.plan.host_of(name) == place:
                self.restarts_from[name] = max(self.restarts_from.get(name, 0.0), until)
        self.over_at = max(self.over_at, until)

    def quiet_agent(self, place: int | None, span: float) -> None:
        for host in sorted({member.host for member in self.on_host(place)} - self.lost_agents):
            self.lost_agents.add(host)
            self.engine.after(span, self.agent_answers, host)

    def agent_answers(self, host: str) -> None:
        self.lost_agents.discard(host)
        for member in list(self.processes.values()):
            if member.host == host and not member.alive:
                self.service.run(self.watch, self.service, member.seat)
                self.replace(member, host)

    def lose_agents(self, fault: Fault, _target: Member | None, _span: float) -> None:
        """Take a host's agent and, with it, its workers."""
        self.lose(fault.host, silently=False, found_after=2.5)

    def lose_host(self, fault: Fault, _target: None, _span: float) -> None:
        self.lose(fault.host, silently=True, found_after=7.0)

    def lose(self, place: int | None, *, silently: bool, found_after: float) -> None:
        if self.service.host in self.hosts(place) and silently:
            self.crash_service(wipe=False, span=found_after)
        for host in sorted({member.host for member in self.on_host(place)}):
            first = next(member for member in self.living() if member.host == host)
            self._lose(first, silently=silently, found_after=found_after)

    def preempt(self, fault: Fault, target: Member | None, span: float) -> None:
        """End a host's agent, or a worker: nothing drains yet."""
        if fault.victim == "worker" and target is not None:
            self.kill(target, "preempted")
        else:
            self.lose_agents(fault, target, span)


def _place_of(host: str) -> int:
    """Return the place of a host; of the service's own -1."""
    digits = host.removeprefix("host-r").rstrip("'+")
    return int(digits) if digits.isdecimal() else -1


How = Callable[[ChaosWorld, Fault, Any, float], None]

_HOW: dict[FaultKind, How] = {
    FaultKind.KILL: ChaosWorld.kill_worker,
    FaultKind.SEGV: ChaosWorld.kill_worker,
    FaultKind.OOM: ChaosWorld.kill_worker,
    FaultKind.HANG: ChaosWorld.hang,
    FaultKind.SLOW: ChaosWorld.slow,
    FaultKind.PARTITION: ChaosWorld.partition,
    FaultKind.LOSS: ChaosWorld.harm,
    FaultKind.DELAY: ChaosWorld.harm,
    FaultKind.DISK_FULL: ChaosWorld.disk_full,
    FaultKind.FLIP_BIT: ChaosWorld.flip_bit,
    FaultKind.NAN: ChaosWorld.nan,
    FaultKind.CLOCK_JUMP: ChaosWorld.clock_jump,
    FaultKind.KILL_COORDINATOR: ChaosWorld.kill_service,
    FaultKind.KILL_CONTROLLER: ChaosWorld.kill_controller,
    FaultKind.KILL_NURSERY: ChaosWorld.kill_nursery,
    FaultKind.KILL_HOST_AGENT: ChaosWorld.lose_agents,
    FaultKind.KILL_HOST: ChaosWorld.lose_host,
    FaultKind.PREEMPT: ChaosWorld.preempt,
}


def run_chaos(plan: Plan, faults: FaultPlan) -> ChaosWorld:
    """Run a plan under faults; a violation tells, and a file keeps, how to replay it."""
    world = ChaosWorld(plan, faults)
    try:
        world.run()
    except Violation as violation:
        parsed = f"FaultPlan.parse(*{faults.specs!r}, seed={faults.seed})"
        raise kept(violation, f"run_chaos({plan!r}, {parsed})") from violation
    return world
