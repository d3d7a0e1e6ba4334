"""The quorum service: a small process of its own that must outlive all others.

Owns the shell around ``quorum.state``: sessions from member processes, sessions with host agents,
the clock, the disk and the journal.  It decides nothing.  ``python -m danaus.quorum.service``
runs it; its command line is ``quorum.service_options``.

Invariants:
    Q-1: what could not be saved is not announced.
    Q-6: it may die at any moment; a new one goes on from its disk.
    P-4: it ends with its controller: by the kernel with the lifeline that it was given, even
    while it is stopped; without one at the end of standard input, where that is a pipe.  Detached
    it goes on for as long as there are members.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from danaus.core.clock import Clock, MonotonicClock
from danaus.core.errors import ChannelClosed, DanausError, FrameDamaged
from danaus.core.journal import Journal
from danaus.core.lifeline import arm_lifeline, end_watched, stdin_watched
from danaus.quorum.agents import HostAgents, how_it_ended, is_address, observation_of
from danaus.quorum.codecs import FROM_REPLICA, FROM_SERVICE
from danaus.quorum.disk import QuorumDisk, watch_keeper
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
    NotifyPending,
    Persist,
    ProbeProcess,
    RebuildAsked,
    Refuse,
    Started,
    TellWaiting,
    TimePassed,
    Unreachable,
    WakeAt,
)
from danaus.quorum.hearing import event_of, speaker
from danaus.quorum.messages import (
    FromService,
    MemberId,
    Register,
    Seat,
    Waiting,
)
from danaus.quorum.minutes import Minutes, member_facts
from danaus.quorum.progress import RebuildGroup, StallJudge, StormReported, Suspect
from danaus.quorum.service_options import ServiceOptions, read_options
from danaus.quorum.state import QuorumMachine
from danaus.wire.address import Address
from danaus.wire.lifecycle import PositionsSeen, ProcessExited
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, serve_sessions

_UNNEEDED_LIMIT_S = 10.0
_log = logging.getLogger("danaus.quorum")


class QuorumService:
    """Carries events to the quorum machine and its instructions out.

    Args:
        machine: Decides.
        disk: Where its quorums are saved.
        secret: The job's secret.
        judge: Decides who hangs.
        journal: Where each decision is written; None: nowhere.
        clock: Where ``now`` comes from.
    """

    def __init__(
        self,
        machine: QuorumMachine,
        disk: QuorumDisk,
        secret: Secret,
        *,
        judge: StallJudge | None = None,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._machine, self._disk, self._secret = machine, disk, secret
        self._judge = judge or StallJudge()
        self._minutes = Minutes(journal)
        self._clock = clock or MonotonicClock()
        self._agents = HostAgents(
            secret, on_exit=self._exited, on_positions=self._positions, on_gone=self._agent_gone
        )
        self._sessions: dict[MemberId, Session] = {}
        self._seated: dict[tuple[str, str], MemberId] = {}
        self._events: deque[Event] = deque()
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
        if self._agents.is_gone(seat.agent_address):
            self._feed(HostGone(seat.member))

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
            self._seated[seat.agent_address, seat.process_id] = seat.member
            self._agents.watch(seat.agent_address, seat.process_id)

    def _fence(self, order: Fence) -> None:
        seat = order.seat
        if self._agents.is_gone(seat.agent_address):
            reason = f"{order.reason}; its host agent has ended"
            self._feed(Unreachable(seat.member, reason))
        if is_address(seat.agent_address):
            self._seated[seat.agent_address, seat.process_id] = seat.member
            self._agents.kill(
                seat.agent_address,
                seat.process_id,
                reason=order.reason,
                save_stacks=order.save_stacks,
            )
        else:
            reason = f"{order.reason}; no host agent can kill it"
            self._feed(Unreachable(seat.member, reason))

    def _agent_gone(self, address: str) -> None:
        """A host agent has ended, and with it its workers: those that are not heard any more."""
        for (where, _), member in list(self._seated.items()):
            session = self._sessions.get(member)
            if where == address and (session is None or not session.is_connected):
                self._feed(HostGone(member))

    def _exited(self, address: str, exited: ProcessExited) -> None:
        member = self._seated.pop((address, exited.process_id), None)
        if member is not None:
            reason = how_it_ended(exited)
            self._minutes.note("quorum_death", **member_facts(member), reason=reason)
            self._judge.forget([member], self._clock.now())
            self._feed(DeathReported(member, reason, clean=exited.exit_code == 0))

    def _positions(self, address: str, seen: PositionsSeen) -> None:
        now = self._clock.now()
        self._judge.forget(filter(self._machine.is_lost, self._seated.values()), now)
        observations = {}
        for position in seen.positions:
            member = self._seated.get((address, position.process_id))
            if member is not None and not self._machine.is_lost(member):
                quiet = self._machine.quiet(member, now)
                observations[member] = observation_of(position, quiet)
        for verdict in self._judge.observe(observations, now):
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
        who = {m: key for key, m in self._seated.items()}.get(verdict.member, ("", ""))
        facts = member_facts(verdict.member)
        self._minutes.note(
            "hang_noticed", **facts, process_id=who[1], still_s=still_s, reason=verdict.reason
        )

    def _note_storm(self, verdict: StormReported) -> None:
        _log.warning("%s", verdict.reason)
        self._minutes.note("storm_noticed", reason=verdict.reason)

    # -- the machine ----------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        """Hand an event to the machine, and those that follow from its instructions after it."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                now = self._clock.now()
                self._carry_out(self._machine.handle(self._events.popleft(), now), now)
        finally:
            self._busy = False

    def _carry_out(self, instructions: tuple[Instruction, ...], now: float) -> None:
        for instruction in instructions:
            if isinstance(instruction, WakeAt):
                self._wake_in(max(0.0, instruction.at - now))
            elif isinstance(instruction, Persist):
                try:
                    self._disk.save(instruction.saved)
                except OSError as error:
                    self._disk_failed(error)
                    self._wake_in(0.1)
                    return  # nothing that follows may be told
            else:
                self._minutes.decided(instruction)
                _ORDERS.get(type(instruction), _nothing)(self, instruction)

    def _disk_failed(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        _log.error("cannot save the quorum in %s: %s", self._disk.path, reason)
        self._minutes.note("quorum_not_saved", path=str(self._disk.path), reason=reason)
        self._events.appendleft(DiskFailed(reason))

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
    TellWaiting: lambda service, order: service._tell([order.member], Waiting(order.reason)),
    ProbeProcess: QuorumService._probe,
    Fence: QuorumService._fence,
}


async def serve(options: ServiceOptions) -> None:
    """Run the service until it is told to end, or its controller is gone."""
    if options.lifeline_fd >= 0:
        arm_lifeline(options.lifeline_fd)
    secret = Secret.load(options.secret_file)
    disk = QuorumDisk(options.folder)
    machine = options.machine(disk.claim(), began=disk.began)
    journal = Journal(options.journal) if options.journal is not None else None
    judge = StallJudge(options.progress)
    service = QuorumService(machine, disk, secret, judge=judge, journal=journal)
    ending, unattended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    controller = os.getppid() if options.detached else 0
    with stdin_watched(loop, ending.set), end_watched(controller, unattended.set):
        try:
            await service.start(Address.parse(options.address))
            async with asyncio.TaskGroup() as tasks:
                looks = (
                    _leave_unattended(service, unattended, ending),
                    watch_keeper(disk, ending.set),
                )
                looking = [tasks.create_task(look) for look in looks]
                await ending.wait()
                for task in looking:
                    task.cancel()
        finally:
            await service.close()
            if journal is not None:
                journal.close()


async def _leave_unattended(
    service: QuorumService, unattended: asyncio.Event, ending: asyncio.Event
) -> None:
    """End a service that nobody owns any more once nobody needs it."""
    await unattended.wait()
    alone_s = 0.0
    while alone_s < _UNNEEDED_LIMIT_S:
        await asyncio.sleep(1.0)
        alone_s = 0.0 if service.num_members else alone_s + 1.0
    ending.set()


def main() -> None:
    """Run the service with the options of the command line; exit code 2 for bad ones."""
    try:
        asyncio.run(serve(read_options(sys.argv[1:])))
    except DanausError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
