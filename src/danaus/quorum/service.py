"""The quorum service: a small process of its own that must outlive all others.

Owns the shell around ``quorum.state``: sessions from member processes, sessions with host agents,
the clock, the disk and the journal.  It decides nothing.  ``python -m danaus.quorum.service``
runs it, and ``danaus lighthouse``; the process around it is ``quorum.lighthouse``'s.

Invariants:
    Q-1: what could not be saved is not announced.
    Q-3: while it is not certain that it is the only one (``quorum.gate``) it decides nothing, saves
    nothing and says nothing; what was decided before waits until it is certain again.
    Q-6: it may die at any moment; a new one goes on from its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from danaus.core.clock import Clock, MonotonicClock
from danaus.core.errors import ChannelClosed, FrameDamaged
from danaus.quorum.agents import (
    HostAgents,
    how_it_ended,
    is_address,
    observation_of,
    progress_of,
)
from danaus.quorum.codecs import FROM_REPLICA, FROM_SERVICE
from danaus.quorum.disk import QuorumDisk
from danaus.quorum.events import (
    Abort,
    Announce,
    DeathReported,
    Disconnected,
    DiskFailed,
    Event,
    Fence,
    HangSuspected,
    HostGone,
    Instruction,
    LeaveAsked,
    ListenerGone,
    NotifyPending,
    Pardon,
    Persist,
    ProbeProcess,
    RebuildAsked,
    Refuse,
    Release,
    Saved,
    Started,
    TellWaiting,
    TimePassed,
    Unreachable,
    WakeAt,
)
from danaus.quorum.gate import Gate, OpenGate
from danaus.quorum.hearing import event_of, speaker
from danaus.quorum.lookout import Lookout
from danaus.quorum.messages import (
    FromService,
    Heartbeat,
    MemberId,
    Register,
    Seat,
    Waiting,
)
from danaus.quorum.minutes import Minutes, member_facts
from danaus.quorum.progress import RebuildGroup, StallJudge, StormReported, Suspect
from danaus.quorum.seated import Seated
from danaus.quorum.state import QuorumMachine
from danaus.quorum.status import Progress, QuorumStatus
from danaus.wire.address import Address
from danaus.wire.lifecycle import PositionsSeen, ProcessExited
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, serve_sessions

_log = logging.getLogger("danaus.quorum")


class QuorumService:
    """Carries events to the quorum machine and its instructions out.

    Args:
        machine: Decides.
        disk: Where its quorums are saved.
        secret: The job's secret.
        judge: Decides who hangs.
        minutes: Where each decision is written down; None: nowhere.
        gate: Whether it may speak; None: always.
    """

    def __init__(
        self,
        machine: QuorumMachine,
        disk: QuorumDisk,
        secret: Secret,
        *,
        judge: StallJudge | None = None,
        minutes: Minutes | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._machine, self._disk, self._secret = machine, disk, secret
        self._judge = judge or StallJudge()
        self._minutes = minutes or Minutes(None)
        self._gate = gate or OpenGate()
        self._clock: Clock = MonotonicClock()
        self._agents = HostAgents(
            secret, on_exit=self._exited, on_positions=self._positions, on_gone=self._agent_gone
        )
        self._lookout = Lookout(
            is_back=self._is_heard, on_gone=lambda member: self._feed(ListenerGone(member))
        )
        self._sessions: dict[MemberId, Session] = {}
        self._seated = Seated()
        self._progress: dict[MemberId, Progress] = {}
        self._events: deque[Event] = deque()
        self._orders: deque[Instruction] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._listener: SessionListener | None = None

    @property
    def address(self) -> Address:
        """Where it listens, with the real port."""
        assert self._listener is not None
        return self._listener.address

    @property
    def num_members(self) -> int:
        """How many processes have a session with it."""
        return len(self._sessions)

    @property
    def status(self) -> QuorumStatus:
        """What a person may want to know of the quorum now."""
        return self._machine.status(self._clock.now(), self._progress)

    def drain(self, replica_id: str, reason: str) -> bool:
        """Have a replica left out of the next quorum; tell whether there is such a replica."""
        member = self._machine.newest(replica_id)
        if member is not None:
            self._minutes.note("drain_asked", replica=replica_id, reason=reason)
            self._feed(LeaveAsked(member, reason))
        return member is not None

    async def start(self, address: Address) -> None:
        """Listen at ``address``.

        Raises:
            AddressRefused: It cannot be bound.
        """
        self._listener = await serve_sessions(address, self._secret, self._serve)
        self._minutes.note("quorum_listening", address=str(self.address), pid=os.getpid())
        self._feed(Started())

    async def close(self) -> None:
        """Leave everyone."""
        if self._timer is not None:
            self._timer.cancel()
        await self._lookout.close()
        await self._agents.close()
        if self._listener is not None:
            await self._listener.close()
        if self._timer is not None:
            self._timer.cancel()

    # -- member processes -----------------------------------------------------------------------

    async def _serve(self, session: Session) -> None:
        """Listen to one member process until its session ends."""
        seat: Seat | None = None
        try:
            async for parts in session:
                message = FROM_REPLICA.decode(parts[0], session.peer)
                if isinstance(message, Register):
                    seat = message.seat
                    self._seat(session, seat)
                elif seat is None or speaker(message) != seat.member:
                    raise FrameDamaged(session.peer, "it speaks for another process")
                elif isinstance(message, Heartbeat) and not seat.agent_address:
                    self._progress[seat.member] = Progress(message.step)
                self._feed(event_of(message))
        except ChannelClosed:
            pass
        except FrameDamaged as damage:
            _log.warning("%s", damage)
        finally:
            if seat is not None and self._sessions.get(seat.member) is session:
                del self._sessions[seat.member]
                self._lost(seat)
            await session.close()

    def _seat(self, session: Session, seat: Seat) -> None:
        """Take a session for a member's; an older one is over."""
        older = self._sessions.get(seat.member)
        self._sessions[seat.member] = session
        if older is not None and older is not session:
            older.end("a newer session took its place")
        session.on_disconnect = lambda _why: self._lost(seat)
        self._watch(seat)

    def _lost(self, seat: Seat) -> None:
        """A member's connection broke."""
        self._feed(Disconnected(seat.member))
        is_orphan = self._agents.is_gone(seat.agent_address)
        if is_orphan:
            self._feed(HostGone(seat.member))
        if is_orphan or not seat.agent_address:
            self._lookout.look(seat)

    def _is_heard(self, member: MemberId) -> bool:
        session = self._sessions.get(member)
        return session is not None and session.is_connected

    def _tell(self, members: Iterable[MemberId], message: FromService) -> None:
        """Send to each that has a session; who has none will ask again when it has."""
        data = FROM_SERVICE.encode(message)
        for member in members:
            session = self._sessions.get(member)
            if session is not None:
                with contextlib.suppress(ChannelClosed):
                    session.send([data])

    # -- host agents ----------------------------------------------------------------------------

    def _watch(self, seat: Seat) -> None:
        if is_address(seat.agent_address):
            self._seated.add(seat)
            self._agents.watch(seat.agent_address, seat.process_id)

    def _fence(self, order: Fence) -> None:
        seat = order.seat
        if self._agents.is_gone(seat.agent_address):
            reason = f"{order.reason}; its host agent has ended"
            self._feed(Unreachable(seat.member, reason))
        if is_address(seat.agent_address):
            self._seated.add(seat)
            self._agents.kill(
                seat.agent_address,
                seat.process_id,
                reason=order.reason,
                save_stacks=order.save_stacks,
            )
        else:
            reason = f"{order.reason}; no host agent can kill it"
            self._feed(Unreachable(seat.member, reason))

    def _pardon(self, order: Pardon) -> None:
        if is_address(order.seat.agent_address):
            self._agents.pardon(order.seat.agent_address, order.seat.process_id)

    def _agent_gone(self, address: str) -> None:
        """A host agent has ended, and with it its workers: those that are not heard any more."""
        for seat in self._seated.on(address):
            if not self._is_heard(seat.member):
                self._feed(HostGone(seat.member))
                self._lookout.look(seat)

    def _exited(self, address: str, exited: ProcessExited) -> None:
        reason = how_it_ended(exited)
        for member in self._seated.take(address, exited.process_id):
            if not self._machine.is_renounced(member):
                self._minutes.note("quorum_death", **member_facts(member), reason=reason)
            self._judge.forget([member], self._clock.now())
            self._feed(DeathReported(member, reason, clean=exited.exit_code == 0))

    def _positions(self, address: str, seen: PositionsSeen) -> None:
        now = self._clock.now()
        self._judge.forget(filter(self._machine.is_lost, self._seated.everyone()), now)
        observations = {}
        for position in seen.positions:
            member = self._seated.newest(address, position.process_id)
            if member is not None and not self._machine.is_lost(member):
                quiet = self._machine.quiet(member, now)
                self._progress[member] = progress_of(position)
                observations[member] = observation_of(position, quiet)
        for verdict in self._judge.observe(observations, now, members=self._machine.members):
            if isinstance(verdict, Suspect):
                self._note_hang(verdict)
                self._feed(HangSuspected(verdict.member, verdict.reason))
            elif isinstance(verdict, RebuildGroup):
                self._minutes.note("group_rebuild_asked", reason=verdict.reason)
                self._feed(RebuildAsked(verdict.reason))
            else:
                self._note_storm(verdict)

    def _note_hang(self, verdict: Suspect) -> None:
        still_s = round(verdict.still_s, 3)
        facts = member_facts(verdict.member)
        process_id = self._seated.process_of(verdict.member)
        self._minutes.note(
            "hang_noticed", **facts, process_id=process_id, still_s=still_s, reason=verdict.reason
        )

    def _note_storm(self, verdict: StormReported) -> None:
        _log.warning("%s", verdict.reason)
        self._minutes.note("storm_noticed", reason=verdict.reason)

    # -- the machine ----------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        """Hand an event to the machine, and those that follow from its instructions after it."""
        self._events.append(event)
        self.go_on()

    def go_on(self) -> None:
        """Decide and do what is due, for as long as the gate is open."""
        if self._busy:
            return
        self._busy = True
        try:
            while (self._orders or self._events) and self._gate.is_open:
                if self._orders:
                    self._carry_out(self._orders.popleft())
                else:
                    event = self._events.popleft()
                    self._orders.extend(self._machine.handle(event, self._clock.now()))
        finally:
            self._busy = False

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, WakeAt):
            self._wake_in(max(0.0, instruction.at - self._clock.now()))
        elif isinstance(instruction, Persist):
            self._save(instruction.saved)
        else:
            self._minutes.decided(instruction)
            _ORDERS.get(type(instruction), _nothing)(self, instruction)

    def _save(self, saved: Saved) -> None:
        if not self._gate.covers(saved.announcement.epoch.term):
            self._not_saved("the lease is yet to name its term")
            return
        try:
            self._disk.save(saved)
        except OSError as error:
            self._not_saved(error.strerror or str(error))
        else:
            self._gate.saved()

    def _not_saved(self, reason: str) -> None:
        """Tell nobody what follows (Q-1)."""
        _log.error("cannot save the quorum in %s: %s", self._disk.path, reason)
        self._minutes.note("quorum_not_saved", path=str(self._disk.path), reason=reason)
        self._orders.clear()
        self._events.appendleft(DiskFailed(reason))
        self._wake_in(0.1)

    def _wake_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_s, self._feed, TimePassed())

    def _probe(self, order: ProbeProcess) -> None:
        self._watch(order.seat)


def _nothing(_service: QuorumService, _instruction: Any) -> None:
    """Writing it down was all there was to do."""


_ORDERS: dict[type, Callable[[QuorumService, Any], None]] = {
    Announce: lambda service, order: service._tell(order.to, order.announcement),
    NotifyPending: lambda service, order: service._tell(order.members, order.message),
    Abort: lambda service, order: service._tell(order.members, order.message),
    Refuse: lambda service, order: service._tell(order.members, order.message),
    Release: lambda service, order: service._tell(order.members, order.message),
    TellWaiting: lambda service, order: service._tell([order.member], Waiting(order.reason)),
    ProbeProcess: QuorumService._probe,
    Fence: QuorumService._fence,
    Pardon: QuorumService._pardon,
}


if __name__ == "__main__":
    from danaus.quorum.lighthouse import main

    main()
