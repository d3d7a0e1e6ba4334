"""What each kind of fault does to a simulated run."""

from __future__ import annotations

from typing import Any

from tests.simulation.engine import Engine
from tests.simulation.member import Member
from tests.simulation.model import flipped
from tests.simulation.monitor import Monitor

from danaus.quorum.events import FoundOut, HangSuspected
from danaus.quorum.messages import Finding

HANG_LIMIT_S = 5.0
FOR_GOOD_S = 1e9
MOST_REPLICAS = 6


class Faults:
    """One method per kind; mixed into the world."""

    engine: Engine
    monitor: Monitor
    service: Any
    checkpoints: Any
    processes: dict[Any, Member]
    incarnations: dict[str, int]
    leaving: set[str]
    over_at: float
    ended: bool

    def fault_kill(self, target: Member, span: float) -> None:
        self.kill(target, "killed")

    def fault_lose_host(self, target: Member, span: float) -> None:
        self._lose(target, silently=True, found_after=7.0)

    def fault_lose_agent(self, target: Member, span: float) -> None:
        self._lose(target, silently=False, found_after=2.5)

    def _lose(self, target: Member, *, silently: bool, found_after: float) -> None:
        """Take a host's agent and with it its workers; the controller finds out and confirms."""
        host = target.host
        self.lost_agents.add(host)
        if silently:
            self.lost_hosts.add(host)
        gone = [member for member in self.living() if member.host == host]
        for member in gone:
            self.kill(member, "its host is lost", silently=silently)
        self.engine.after(found_after, self.found_lost, host)
        self.over_at = max(self.over_at, self.engine.now + found_after)

    def found_lost(self, host: str) -> None:
        self.lost_agents.discard(host)
        new = host + "'"
        for member in list(self.processes.values()):
            if member.host == host and not member.alive:
                self.service.run(self.watch, self.service, member.seat)
                self.replace(member, new)

    def fault_hang(self, target: Member, span: float) -> None:
        target.stop()
        self.engine.after(HANG_LIMIT_S, self.judge, target)

    def fault_wedge(self, target: Member, span: float) -> None:
        target.wedged = True
        self.engine.after(HANG_LIMIT_S, self.judge, target)

    def judge(self, target: Member) -> None:
        """P-3, in short: a process that makes no progress is suspected until it is dead."""
        if not target.alive or self.ended or not (target.stopped or target.wedged):
            return
        service = self.service
        if target.who not in service.machine._s.roster.processes:
            self.kill(target, "it does not register")  # its supervisor's business
            return
        service.run(service.take, HangSuspected(target.who, "no progress"))
        self.engine.after(2.0, self.judge, target)

    def fault_pause(self, target: Member, span: float) -> None:
        target.stop()
        self.engine.after(span, target.go_on)

    def fault_flip(self, target: Member, span: float) -> None:
        self.monitor.flips += 1
        target.model = flipped(target.model, f"{target.name} {self.engine.now}")

    def fault_missum(self, target: Member, span: float) -> None:
        target.missumming = True

    def fault_fail_compute(self, target: Member, span: float) -> None:
        target.failing = True

    def fault_refuse(self, target: Member, span: float) -> None:
        target.refusing = True

    def fault_garble_fetch(self, target: Member, span: float) -> None:
        target.garbling = True
        self.monitor.flips += 1

    def fault_drop_log(self, target: Member, span: float) -> None:
        target.lend_nothing()

    def fault_echo(self, target: Member, span: float) -> None:
        target.echoing = True

    def fault_cut_service(self, target: Member, span: float) -> None:
        if target.session:
            target.session.break_off()

    def fault_cut_peers(self, target: Member, span: float) -> None:
        """Break every connection with the group: both ends find the other gone."""
        group = target.group
        if group is None:
            return
        epoch = group.announcement.epoch
        target.reset_links()
        for peer in group.members:
            other = self.processes[peer]
            if peer == target.who or not other.alive:
                continue
            if link := other.links.pop(target.who, None):
                link.cut = True
            target.to_peer(peer, epoch, "gone")
            other.to_peer(target.who, epoch, "gone")

    def fault_isolate(self, target: Member, span: float) -> None:
        rest = frozenset(m.host for m in self.processes.values()) | {self.service.host}
        self.engine.wall(frozenset({target.host}), rest - {target.host}, span)

    def fault_isolate_from_service(self, target: Member, span: float) -> None:
        self.engine.wall(frozenset({target.host}), frozenset({self.service.host}), span)

    def fault_isolate_from_peers(self, target: Member, span: float) -> None:
        rest = frozenset(m.host for m in self.processes.values())
        self.engine.wall(frozenset({target.host}), rest - {target.host}, span)

    def fault_rift(self, target: Member, span: float) -> None:
        self._part(target, one_way=False)

    def fault_one_way_rift(self, target: Member, span: float) -> None:
        self._part(target, one_way=True)

    def _part(self, target: Member, *, one_way: bool) -> None:
        """Let the hosts of two replicas never reach each other again: the run must end so too."""
        others = sorted(m.host for m in self.living() if m.host != target.host)
        if others:
            there = frozenset({self.engine.random.choice(others)})
            self.engine.wall(frozenset({target.host}), there, FOR_GOOD_S, one_way=one_way)

    def fault_mute(self, target: Member, span: float) -> None:
        self.engine.wall(frozenset({target.host}), self._apart_from(target), span, one_way=True)

    def fault_deafen(self, target: Member, span: float) -> None:
        self.engine.wall(self._apart_from(target), frozenset({target.host}), span, one_way=True)

    def fault_mute_to_service(self, target: Member, span: float) -> None:
        here, there = frozenset({target.host}), frozenset({self.service.host})
        self.engine.wall(here, there, span, one_way=True)

    def fault_deafen_to_service(self, target: Member, span: float) -> None:
        here, there = frozenset({target.host}), frozenset({self.service.host})
        self.engine.wall(there, here, span, one_way=True)

    def _apart_from(self, target: Member) -> frozenset[str]:
        everybody = {self.service.host, *(m.host for m in self.processes.values())}
        return frozenset(everybody - {target.host})

    def fault_evict(self, target: Member, span: float) -> None:
        """Hold one to be hung that works: what it has said is still on its way."""
        service = self.service
        if target.who in service.machine._s.roster.processes:
            service.later(0.0, service.take, HangSuspected(target.who, "it is held to be hung"))

    def fault_evict_in_vain(self, target: Member, span: float) -> None:
        """The same, and it cannot be killed before a while has passed: it works on."""
        target.immortal_until = self.engine.now + span
        self.fault_evict(target, span)

    def fault_straggle(self, target: Member, span: float) -> None:
        """Let members find one too slow: it ends at a boundary, to make room for another."""
        self._send_away(target)
        found = Finding(target.who, target.who, "slow", target.model.step, "is slow")
        self.service.later(0.0, self.service.take, FoundOut(found))

    def fault_leave(self, target: Member, span: float) -> None:
        """Let a replica leave for good, if another stays."""
        name = target.who.replica_id
        if {m.who.replica_id for m in self.living()} - self.leaving - {name}:
            self._send_away(target)
            self.leaving.add(name)
            self.say_leave(target)

    def _send_away(self, target: Member) -> None:
        self.monitor.sent_away.add((target.who.replica_id, target.who.incarnation))

    def fault_grow(self, _at: Member | None, span: float) -> None:
        """Start one more replica, or again one that has left."""
        gone = self.leaving - {m.who.replica_id for m in self.living()}
        name = min(gone, default=f"r{len(self.incarnations)}")
        if len(self.incarnations) < MOST_REPLICAS or gone:
            self.leaving.discard(name)
            self.start(name, f"host-{name}" + "+" * self.incarnations.get(name, 0))

    def fault_leap(self, target: Member, span: float) -> None:
        target.leap(span)

    def fault_leap_service(self, _at: Member | None, span: float) -> None:
        self.service.leap(span)

    def fault_replace(self, target: Member, span: float) -> None:
        """Start the next incarnation elsewhere though this one lives."""
        key = (target.who.replica_id, target.who.incarnation)
        if key not in self.restarting and self.incarnations[key[0]] == key[1]:
            self.restarting.add(key)
            self.engine.after(0.2, self.start, key[0], target.host + "+")

    def fault_crash_service(self, _at: Member | None, span: float) -> None:
        self.crash_service(wipe=False, span=span)

    def fault_wipe_service(self, _at: Member | None, span: float) -> None:
        self.crash_service(wipe=True, span=span)

    def fault_second_service(self, _at: Member | None, span: float) -> None:
        self.second_service(self.service.host + "'")

    def fault_pause_service(self, _at: Member | None, span: float) -> None:
        self.service.stop()
        self.engine.after(span, self.service.go_on)

    def fault_fill_disk(self, _at: Member | None, span: float) -> None:
        self.disk_full += 3

    def fault_damage_checkpoint(self, _at: Member | None, span: float) -> None:
        self.checkpoints.damage()
        self.damaged = True

    def fault_kill_all(self, _at: Member | None, span: float) -> None:
        for member in self.living():
            self.kill(member, "all are killed")

    def fault_kill_others(self, _at: Member | None, span: float) -> None:
        keep = _at or next(iter(self.living()), None)
        for member in self.living():
            if keep and member.who.replica_id != keep.who.replica_id:
                self.kill(member, "all others are killed")
