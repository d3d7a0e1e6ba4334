"""Repair of one rank in simulated time: its siblings go on in their processes (H-3).

The shape is that of ``app.rank_repair`` and ``app.training``: the siblings of a dead process give
their name up, a new process is started, and all meet under the replica's next incarnation before
any of them asks.  What does not come together in time is killed and started whole.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.engine import Engine, Violation
from tests.simulation.member import BEAT_S, Member
from tests.simulation.monitor import Monitor

from danaus.ft.stage import Stage
from danaus.ft.step_events import Aborted, Applied, Computed, Reduced, VotesIn
from danaus.quorum.messages import Epoch, MemberId, Renounce

REPAIR_LIMIT_S = 8.0


def newest(member: Member) -> Member:
    """Return a process under the name that it has now."""
    while member.after is not None:
        member = member.after
    return member


def names(member: Member) -> list[Member]:
    """Return a process under all names that it has had so far, the newest first."""
    return [member, *(names(member.before) if member.before is not None else [])]


def _hears_late(member: Member) -> None:
    """Hand a process what may come after it has given its name up: nothing follows from it."""
    epoch, step = member.machine.epoch or Epoch(1, 1), member.model.step + 1
    late = (
        Computed(epoch, step),
        Reduced(epoch, step, "late", member.model.fingerprint),
        VotesIn(epoch, step, member.known_votes),
        Applied(step, "late"),
    )
    for event in late:
        if orders := member.machine.handle(event):
            raise Violation("H-3", f"{member.name} has given its name up and orders {orders}")


class Repairs:
    """The part of a world that repairs replicas."""

    engine: Engine
    monitor: Monitor
    plan: Any
    processes: dict[MemberId, Member]
    incarnations: dict[str, int]
    restarting: set[tuple[str, int]]
    repairing: dict[tuple[str, int], int]
    leaving: set[str]
    pardoned: set[MemberId]
    restarts_from: dict[str, float]
    num_repaired: int

    def has_met(self, member: Member) -> bool:
        """Tell whether all ranks of a repaired replica are there; others meet at once."""
        name, rank, incarnation = member.who.replica_id, member.who.rank, member.who.incarnation
        if incarnation not in [self.repairing.get(key) for key in self.repairing if key[0] == name]:
            return True
        ranks = [MemberId(name, each, incarnation) for each in range(self.plan.ranks)]
        met = all(each in self.processes for each in ranks)
        if met and rank == 0:
            self.num_repaired += 1
        return met

    def repair(self, lost: Member) -> bool:
        """Begin to repair a replica that has lost one rank; false: it is started whole."""
        name, incarnation = key = (lost.who.replica_id, lost.who.incarnation)
        siblings = [m for m in self.living() if (m.who.replica_id, m.who.incarnation) == key]
        here = all(m.host == lost.host for m in siblings)
        if (
            not self.plan.repairs
            or len(siblings) != self.plan.ranks - 1
            or not siblings
            or not here
            or name in self.leaving
            or key in self.restarting
            or self.incarnations[name] != incarnation
            or self.restarts_from.get(name, 0.0) > self.engine.now
            or self.is_over()
            or self.engine.random.random() < 0.1
        ):
            return False
        self.restarting.add(key)
        self.incarnations[name] = coming = incarnation + 1
        self.repairing[key] = coming
        chance = self.engine.random
        for sibling in siblings:
            sibling.later(chance.uniform(0.0, 0.5), self.give_up_name, sibling, coming)
        who = MemberId(name, lost.who.rank, coming)
        self.engine.after(chance.uniform(0.1, 1.0), self.start_rank, who, lost.host)
        self.engine.after(REPAIR_LIMIT_S, self.judge_repair, key, lost.host)
        return True

    def start_rank(self, who: MemberId, host: str) -> None:
        if self.goes_on(who.replica_id, who.incarnation):
            self.add_process(Member(self, who, host))

    def goes_on(self, name: str, incarnation: int) -> bool:
        """Tell whether a repair was not given up."""
        given_up = (name, incarnation) in self.restarting
        return self.incarnations[name] == incarnation and not given_up and not self.ended

    def add_process(self, member: Member) -> None:
        self.processes[member.who] = member
        member.later(BEAT_S, self.beat, member)

    def give_up_name(self, sibling: Member, incarnation: int) -> None:
        """End a process's life under one name, once no step is half applied, and begin the next."""
        if sibling.finished or not self.goes_on(sibling.who.replica_id, incarnation):
            return
        if sibling.machine.stage is Stage.APPLYING:
            sibling.later(0.01, self.give_up_name, sibling, incarnation)
            return
        self.engine.note(sibling.name, "gives its name up")
        if held := sibling.broken_off():
            sibling.machine.handle(Aborted(held.epoch, "a sibling is lost", held=held))
        past = sibling.machine.renounce()
        self.monitor.renounced(sibling)
        _hears_late(sibling)
        if sibling.session:
            sibling.session.to_service(Renounce(sibling.who, "a sibling is lost"))
            if self.engine.random.random() < 0.5:  # what is on its way may be lost
                sibling.session.break_off()
        sibling.leave_group()
        sibling.lend_nothing()
        sibling.alive = False
        who = MemberId(sibling.who.replica_id, sibling.who.rank, incarnation)
        sibling.after = after = Member(self, who, sibling.host, before=sibling)
        after.take_up(past)
        self.add_process(after)

    def breaks_repair(self, lost: Member) -> bool:
        """Give a repair up of which one more process has died before all had met."""
        name, incarnation = lost.who.replica_id, lost.who.incarnation
        for key, coming in self.repairing.items():
            under_way = key[0] == name and self.incarnations[name] == coming
            if under_way and (incarnation < coming or not self.is_whole(name, coming)):
                self.give_up_repair(key, lost.host)
                return True
        return False

    def is_whole(self, name: str, incarnation: int) -> bool:
        """Tell whether every rank of an incarnation has been there, and none is held up."""
        ranks = [MemberId(name, each, incarnation) for each in range(self.plan.ranks)]
        return all(each in self.processes for each in ranks)

    def judge_repair(self, key: tuple[str, int], host: str) -> None:
        if not self.is_whole(key[0], self.repairing[key]):
            self.give_up_repair(key, host)

    def give_up_repair(self, key: tuple[str, int], host: str) -> None:
        """Kill what there is of a replica, and start it whole."""
        name, coming = key[0], self.repairing[key]
        if (name, coming) in self.restarting or self.incarnations[name] != coming:
            return
        self.restarting.add((name, coming))
        for member in self.living():
            if member.who.replica_id == name:
                self.kill(member, "its replica is started whole")
        if name not in self.leaving and not self.is_over():
            self.engine.after(self.engine.random.uniform(0.1, 1.0), self.start, name, host)

    def fenced(self, member: Member, how: str) -> None:
        """End a process that the service wants dead, unless that was called off in time."""
        if member.who not in self.pardoned:
            self.kill(member, how)

    def living(self) -> list[Member]:
        raise NotImplementedError

    def is_over(self) -> bool:
        raise NotImplementedError

    def kill(self, member: Member, reason: str, *, silently: bool = False) -> None:
        raise NotImplementedError

    def start(self, name: str, host: str) -> None:
        raise NotImplementedError

    def beat(self, member: Member) -> None:
        raise NotImplementedError

    ended: bool
