"""Strikes a run: a resolved fault becomes signals, cuts in a network, or a wish at the door.

Owns ``Striker``.  Each fault is written to the run's journal and to the campaign's record before
it strikes; what a victim does to itself, it writes to the journal, where the striker hears of it.
What lasts is lifted when its time is over, and when the striker is closed.

A process that is stopped or slowed is let go by the striker: where that dies first, the victim
stays as it is, which is a hang.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Protocol

from danaus.actor import procfs
from danaus.app.chaos_asked import Asked
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_log import RecordFile
from danaus.app.chaos_record import fault_line, missed_line
from danaus.app.chaos_spec import write
from danaus.app.chaos_victims import Elsewhere, Victim, Victims
from danaus.app.door import Door
from danaus.app.events import CONTROLLER, Event, FaultKind
from danaus.core.clock import Clock, MonotonicClock
from danaus.core.errors import ConfigError, DanausError
from danaus.core.journal import Journal

TICK_S = 0.02
"""How often ``tick`` wants to be called."""

_SIGNALS = {
    FaultKind.HANG: signal.SIGSTOP,
    FaultKind.SLOW: signal.SIGSTOP,
    FaultKind.PREEMPT: signal.SIGTERM,
}
_BY_ITSELF = (FaultKind.KILL, FaultKind.HANG, FaultKind.SLOW)
"""What a worker can do to itself just as well."""
_NOBODY = "no such process is alive on this machine"


class Network(Elsewhere, Protocol):
    """The hosts of a run and what is between them, where that can be harmed."""

    def cut(self, host: int, peer: int | str | None, *, one_way: bool) -> None:
        """Let no packet pass between a host and its peer, or everybody; ``one_way``: from it."""

    def heal(self, host: int, peer: int | str | None) -> None:
        """Undo ``cut``."""

    def link(self, host: int, *, loss: float | None = None, delay_s: float | None = None) -> None:
        """Lose a share of a host's packets, or delay them; 0: not any more."""

    def crash(self, host: int) -> None:
        """End all processes of a host at once, without a last word."""

    def start(self, host: int) -> None:
        """Start a host that has crashed."""


class Lasting(Protocol):
    """What goes on after a strike."""

    fault: Fault

    def tick(self, now_s: float) -> bool:
        """Go on; tell whether it is over."""

    def lift(self) -> None:
        """Undo it."""


class Striker:
    """Strike a run.

    Args:
        victims: The run's processes.
        record: Of the campaign; stays the caller's.
        journal: The run's; stays the caller's.
        door: The controller's.
        network: Between the run's hosts; None: it cannot be harmed.
        say: Told of each fault, for a person.
    """

    def __init__(
        self,
        victims: Victims,
        record: RecordFile,
        journal: Journal,
        *,
        door: Door,
        network: Network | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._victims, self._record, self._journal = victims, record, journal
        self._door, self._network, self._say = door, network, say
        self._clock: Clock = MonotonicClock()
        self._began_s = self._clock.now()
        self._lasting: list[Lasting] = []
        self._asked = Asked(journal.path)
        self.num_struck = 0
        self.num_missed = 0

    @property
    def is_lasting(self) -> bool:
        """Tell whether something that lasts is not over."""
        return bool(self._lasting)

    @property
    def num_open(self) -> int:
        """How many victims were asked to strike themselves and have not been heard of."""
        return len(self._asked)

    def strike(self, fault: Fault) -> None:
        """Strike with a resolved fault, or write down why it missed."""
        try:
            how = {"outside": self._signal, "inside": self._ask, "network": self._harm}[fault.by]
            if fault.kind is FaultKind.KILL_HOST and self._network is not None:
                how = self._harm  # no process there may say good-bye
            how(fault)
        except (DanausError, OSError) as error:
            self._miss(fault, str(error))

    def expect(self, fault: Fault) -> None:
        """Write down a fault that its victim is told of by others, and wait to hear of it."""
        self._record.write(fault_line(fault, self._clock.now() - self._began_s))
        self._asked.add(fault)

    def tick(self) -> None:
        """Hear of what was asked for, and go on with what lasts; call it each ``TICK_S``."""
        self._hear()
        now_s = self._clock.now()
        for each in [each for each in self._lasting if each.tick(now_s)]:
            self._lift(each)

    def close(self) -> None:
        """Undo what lasts, and hear for the last time."""
        for each in list(self._lasting):
            self._lift(each)
        self._hear()

    # -- how ------------------------------------------------------------------------------------

    def _signal(self, fault: Fault) -> None:
        found = self._victims.of(fault)
        if not found and fault.kind in _BY_ITSELF and fault.replica is not None:
            self._ask(fault)  # it may live on another machine
            return
        if not found:
            raise ConfigError(f"{self._victims.target(fault)} was not struck", _NOBODY)
        if fault.kind is FaultKind.KILL_COORDINATOR and fault.for_s is not None:
            self._door.hold_service(fault.for_s)
        number = _SIGNALS.get(fault.kind, signal.SIGKILL)
        if number is signal.SIGSTOP and os.getpid() in [victim.pid for victim in found]:
            why = "a controller that stops itself cannot let itself go on"
            raise ConfigError(why, "danaus chaos, from another terminal")
        self._write(fault, words(fault, found), found)
        if fault.kind is FaultKind.KILL_COORDINATOR and fault.where == "disk":
            self._victims.lose_quorum()
        hit = [procfs.signal_exactly(v.pid, v.started, number) for v in found]
        if not any(hit):
            raise ConfigError(f"{self._victims.target(fault)} was not struck", _NOBODY)
        self.num_struck += 1
        if fault.for_s is not None and number is signal.SIGSTOP:
            self._lasting.append(_Stopped(fault, found, self._clock.now()))
        if fault.for_s is not None and fault.kind is FaultKind.PREEMPT:
            self._lasting.append(_Noticed(fault, found, self._clock.now()))

    def _ask(self, fault: Fault) -> None:
        self.expect(fault)
        try:
            self._door.strike(fault)
        except DanausError:
            self._hear()  # whoever dies or hangs of it does not answer
            if self._asked.discard(fault):
                raise
        else:
            self._told(fault, f"asked replica-{fault.replica} to strike itself")

    def _hear(self) -> None:
        for answer in self._asked.answers():
            if answer.struck:
                self.num_struck += 1
                self._told(answer.fault, answer.words)
            else:
                self._record.write(missed_line(answer.fault, answer.words))
                self._told_missed(answer.fault, answer.words)

    def _harm(self, fault: Fault) -> None:
        if self._network is None:
            raise ConfigError(f"{fault.kind.value} needs a network that can be harmed", "a lab")
        self._write(fault, words(fault, ()))
        self._lasting.append(_Harmed(fault, self._network, self._clock.now()))
        self.num_struck += 1

    # -- what is written -------------------------------------------------------------------------

    def _write(self, fault: Fault, text: str, found: Sequence[Victim] = ()) -> None:
        """Write a fault down; it strikes next."""
        self._record.write(fault_line(fault, self._clock.now() - self._began_s))
        worker = next((v for v in found if v.process_id), None)
        facts: dict[str, object] = {"pid": found[0].pid} if found else {}
        if worker is not None:
            facts |= {
                "process_id": worker.process_id,
                "replica": worker.replica,
                "incarnation": worker.incarnation,
            }
        self._journal.record(
            Event.FAULT_INJECTED,
            fault=fault.id,
            kind=fault.kind,
            target=self._victims.target(fault),
            spec=write(fault),
            step=fault.at_step,
            text=text,
            **facts,
        )
        self._told(fault, text)

    def _told(self, fault: Fault, text: str) -> None:
        self._say(f"step {fault.at_step}  {fault.id}  {text}")

    def _miss(self, fault: Fault, reason: str) -> None:
        self._record.write(missed_line(fault, reason))
        target = self._victims.target(fault)
        self._journal.record(
            Event.FAULT_MISSED, fault=fault.id, kind=fault.kind, target=target, reason=reason
        )
        self._told_missed(fault, reason)

    def _told_missed(self, fault: Fault, reason: str) -> None:
        self.num_missed += 1
        self._told(fault, f"missed: {reason}")

    def _lift(self, lasting: Lasting) -> None:
        self._lasting.remove(lasting)
        fault, reason = lasting.fault, ""
        try:
            lasting.lift()
        except (DanausError, OSError) as error:  # a lab that was taken down meanwhile, say
            reason = str(error)
            self._say(f"{fault.id}  cannot be undone: {reason}")
        self._journal.record(
            Event.FAULT_LIFTED,
            fault=fault.id,
            kind=fault.kind,
            target=self._victims.target(fault),
            reason=reason,
        )


def words(fault: Fault, found: Sequence[Victim]) -> str:
    """Return what is done, for a person."""
    whom = found[0].words if found else f"host{fault.host}"
    if fault.kind is FaultKind.HANG:
        for_s = "" if fault.for_s is None else f" for {fault.for_s:g} s"
        return f"kill -STOP {whom}: it hangs{for_s}"
    if fault.kind is FaultKind.SLOW:
        return f"{whom} is {fault.amount:g} times as slow for {fault.for_s:g} s"
    if fault.kind is FaultKind.PREEMPT:
        for_s = "" if fault.for_s is None else f", and kill -9 after {fault.for_s:g} s"
        return f"kill -TERM {whom}: it is to leave{for_s}"
    if fault.kind is FaultKind.KILL_HOST:
        return f"kill -9 all {len(found) or ''} processes of host{fault.host}".replace("  ", " ")
    if fault.kind is FaultKind.KILL_COORDINATOR and fault.where == "disk":
        return f"kill -9 {whom}, and what it has saved is lost"
    return f"kill -9 {whom}" if found else _network_words(fault)


def _network_words(fault: Fault) -> str:
    host, for_s = f"host{fault.host}", f"for {fault.for_s:g} s"
    if fault.kind is FaultKind.LOSS:
        return f"{fault.amount:g}% of the packets of {host} are lost {for_s}"
    if fault.kind is FaultKind.DELAY:
        return f"packets of {host} take {1000 * (fault.amount or 0.0):g} ms longer {for_s}"
    others: dict[int | str | None, str] = {None: "everybody", CONTROLLER: f"the {CONTROLLER}"}
    peer = others.get(fault.peer, f"host{fault.peer}")
    way = f"from {host} to {peer}" if fault.one_way else f"between {host} and {peer}"
    return f"no packet passes {way} {for_s}"


class _Stopped:
    """Processes that are stopped: all the time, or most of it."""

    def __init__(self, fault: Fault, victims: Sequence[Victim], now_s: float) -> None:
        self.fault, self._victims, self._began_s = fault, victims, now_s
        self._runs = False

    def tick(self, now_s: float) -> bool:
        past_s = now_s - self._began_s
        if self.fault.kind is FaultKind.SLOW:
            cycle_s = TICK_S * (self.fault.amount or 1.0)
            self._let(past_s % cycle_s >= cycle_s - TICK_S)
        return past_s >= (self.fault.for_s or 0.0)

    def lift(self) -> None:
        self._let(True)

    def _let(self, run: bool) -> None:
        if run != self._runs:
            self._runs = run
            for victim in self._victims:
                number = signal.SIGCONT if run else signal.SIGSTOP
                procfs.signal_exactly(victim.pid, victim.started, number)


class _Noticed:
    """Processes that were asked to end, and are killed after a time."""

    def __init__(self, fault: Fault, victims: Sequence[Victim], now_s: float) -> None:
        self.fault, self._victims = fault, victims
        self._until_s = now_s + (fault.for_s or 0.0)

    def tick(self, now_s: float) -> bool:
        return now_s >= self._until_s or not any(map(_is_there, self._victims))

    def lift(self) -> None:
        for victim in self._victims:
            procfs.signal_exactly(victim.pid, victim.started, signal.SIGKILL)


def _is_there(victim: Victim) -> bool:
    stat = procfs.read_stat(victim.pid)
    return stat is not None and stat.started == victim.started and not stat.is_zombie


class _Harmed:
    """A host or its network that is harmed."""

    def __init__(self, fault: Fault, network: Network, now_s: float) -> None:
        self.fault, self._network = fault, network
        self._until_s = now_s + (fault.for_s or 0.0)
        self._do(fault.amount or 0.0)

    def tick(self, now_s: float) -> bool:
        return now_s >= self._until_s

    def lift(self) -> None:
        self._do(None)

    def _do(self, amount: float | None) -> None:
        """Harm, or undo it with no amount."""
        fault, network, host = self.fault, self._network, self.fault.host or 0
        if fault.kind is FaultKind.LOSS:
            network.link(host, loss=(amount or 0.0) / 100)
        elif fault.kind is FaultKind.DELAY:
            network.link(host, delay_s=amount or 0.0)
        elif fault.kind is FaultKind.KILL_HOST:
            (network.start if amount is None else network.crash)(host)
        elif amount is None:
            network.heal(host, fault.peer)
        else:
            network.cut(host, fault.peer, one_way=fault.one_way)
