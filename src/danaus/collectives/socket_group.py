"""A group over our own authenticated sockets: abortable at any moment, whatever the peers do.

Owns the connections with all members of one epoch and the loop that moves bytes; what is moved
is ``tree_exchange``'s.  The calling thread does all the work: no thread of its own, no descriptor
left after ``close``.

Invariants:
    Q-5: every wait is a ``poll`` that an event descriptor ends.
    W-2: peers are proven to hold the job's secret before anything is exchanged.
    W-3: all bytes are checksummed.
    A member that leaves ends its connections, so that its peers leave too.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from danaus.collectives.bytes_exchange import BytesExchange
from danaus.collectives.forming import Forming, Rendezvous
from danaus.collectives.group import (
    SMALL_LIMIT_BYTES,
    check_bytes,
    check_reduction,
    check_small,
)
from danaus.collectives.lane import Collective, Exchange, Lane
from danaus.collectives.meeting import MeetingPoint
from danaus.collectives.small_exchange import SmallExchange
from danaus.collectives.tree import ReductionPlan
from danaus.collectives.tree_exchange import TreeExchange, Workspace
from danaus.collectives.waiting import wait_for_events
from danaus.core.clock import Deadline
from danaus.core.errors import (
    ConfigError,
    DanausError,
    DeadlinePassed,
    ExchangeAborted,
    PeerLost,
)
from danaus.core.nudge import Nudge
from danaus.wire.secret import Secret

_BREAKING = (PeerLost, DeadlinePassed, ExchangeAborted)


class SocketGroup:
    """One member's side of a group; call ``form`` before anything else.

    Args:
        meeting: Where this process is found by its peers; stays the caller's.
        secret: The job's secret.
        rendezvous: Who takes part.
        workspace: Kept buffers to take over from the group before; new ones unless given.
        on_collective: Called with a number that grows with each exchange (P-3).

    Raises:
        StaleQuorum: This process has been in a later epoch.
    """

    def __init__(
        self,
        meeting: MeetingPoint,
        secret: Secret,
        rendezvous: Rendezvous,
        *,
        workspace: Workspace | None = None,
        on_collective: Callable[[int], None] | None = None,
    ) -> None:
        if rendezvous.me not in rendezvous.members:
            raise ConfigError(what=f"{rendezvous.me} is no member of epoch {rendezvous.epoch}")
        self._meeting, self._secret, self._rendezvous = meeting, secret, rendezvous
        self._names = tuple(rendezvous.members)
        self.workspace = Workspace() if workspace is None else workspace
        self._on_collective = on_collective
        self._number = 0
        self._received: dict[str, bytes] = {}
        self._lanes: dict[str, Lane] = {}
        self._by_fd: dict[int, Lane] = {}
        self._lock = threading.Lock()  # guards _broken, _closed and the descriptors' life
        self._in_use = threading.Lock()  # held by the thread inside an exchange
        self._broken: DanausError | None = None
        self._closed = False
        self.unreached: frozenset[str] = frozenset()
        """Members that could not be dialled when the group was to be formed."""
        self._nudge = Nudge()
        try:
            meeting.open(rendezvous.epoch, rendezvous.me, self._wake)
        except BaseException:
            self._nudge.close()
            raise

    # -- facts --------------------------------------------------------------------------------

    @property
    def epoch(self) -> str:
        return self._rendezvous.epoch

    @property
    def me(self) -> str:
        return self._rendezvous.me

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def num_bytes_sent(self) -> int:
        """Bytes given to sockets since the group was formed."""
        return sum(lane.num_bytes_sent for lane in self._lanes.values())

    @property
    def num_bytes_received(self) -> int:
        """Bytes taken from sockets since the group was formed."""
        return sum(lane.num_bytes_received for lane in self._lanes.values())

    def received(self) -> dict[str, bytes]:
        return dict(self._received)

    # -- forming ------------------------------------------------------------------------------

    def form(self, deadline: Deadline) -> SocketGroup:
        """Connect with every other member; return this group.

        Raises:
            StaleQuorum: A member is in a later epoch.
            PeerLost: A member cannot be reached or went away.
            DeadlinePassed: Not all members came in time.
            ExchangeAborted: ``abort`` was called.
        """
        with self._in_use:
            forming = Forming(
                self._rendezvous,
                self._secret,
                self._meeting,
                nudge=self._nudge,
                check=self._nudged,
            )
            try:
                connections = forming.run(deadline)
            except DanausError as error:
                self.unreached = frozenset(forming.unreached)
                raise self._break(error) from error.__cause__
            with self._lock:
                self._lanes = {name: Lane(name, each) for name, each in connections.items()}
                self._by_fd = {lane.fileno(): lane for lane in self._lanes.values()}
            self._check()
        return self

    # -- exchanges ----------------------------------------------------------------------------

    def reduce_tree(
        self,
        partials: Sequence[Tensor],
        out: Tensor,
        *,
        plan: ReductionPlan,
        subset: Sequence[str],
        deadline: Deadline,
    ) -> None:
        place = check_reduction(self.me, partials, out, plan=plan, subset=subset)
        lanes = self._lanes_of(subset)
        with self._in_use:
            self._begin()
            exchange = TreeExchange(
                plan,
                place,
                lanes,
                partials=[tensor.reshape(-1) for tensor in partials],
                out=out.reshape(-1),
                workspace=self.workspace,
            )
            self._run(exchange, [lane for lane in lanes if lane is not None], deadline)

    def exchange_small(
        self, payload: bytes, *, deadline: Deadline, subset: Sequence[str] | None = None
    ) -> dict[str, bytes]:
        check_small(payload)
        self._received = {}
        chosen = self._names if subset is None else tuple(subset)
        lanes = {lane.peer: lane for lane in self._lanes_of(chosen) if lane is not None}
        with self._in_use:
            self._begin()
            self._received = {self.me: bytes(payload)}
            exchange = SmallExchange(self.me, lanes, self._received, limit_bytes=SMALL_LIMIT_BYTES)
            try:
                self._run_small(exchange, deadline)
            except _BREAKING as error:
                raise self._break(error) from error.__cause__
            for lane in lanes.values():
                lane.number += 1
        return {name: self._received[name] for name in chosen}

    def exchange_bytes(
        self,
        give: Mapping[str, memoryview],
        take: Mapping[str, memoryview],
        *,
        deadline: Deadline,
    ) -> None:
        peers = sorted(give.keys() | take.keys())
        check_bytes(self.me, peers)
        lanes = [lane for lane in self._lanes_of([self.me, *peers]) if lane is not None]
        with self._in_use:
            self._begin()
            self._run(BytesExchange(lanes, give, take), lanes, deadline)

    def _lanes_of(self, subset: Sequence[str]) -> list[Lane | None]:
        self._check()
        strangers = [n for n in subset if n != self.me and n not in self._lanes]
        if strangers or self.me not in subset:
            raise ConfigError(
                what=f"{self.me} cannot exchange among {list(subset)}",
                needed=f"members of the formed epoch {self.epoch}, this one included",
            )
        return [self._lanes.get(name) for name in subset]

    def _begin(self) -> None:
        self._check()
        self._number += 1
        if self._on_collective is not None:
            self._on_collective(self._number)

    def _run(self, exchange: Collective, lanes: list[Lane], deadline: Deadline) -> None:
        """Move bytes until the exchange is over on every lane; any failure breaks the group."""
        poller = select.poll()
        poller.register(self._nudge, select.POLLIN)
        interest: dict[Lane, int] = {}
        try:
            exchange.start()
            while self._watch(poller, exchange, lanes, interest=interest):
                for fd, event in self._poll(poller, exchange, lanes, deadline=deadline):
                    self._serve(fd, event, exchange)
        except _BREAKING as error:
            raise self._break(error) from error.__cause__
        for lane in lanes:
            lane.number += 1

    def _run_small(self, exchange: SmallExchange, deadline: Deadline) -> None:
        """Exchange small payloads: a lane is looked at only when something is new about it."""
        poller = select.poll()
        poller.register(self._nudge, select.POLLIN)
        interest: dict[int, int] = {}
        exchange.start()
        news = list(exchange.lanes)
        while True:
            for lane in news:
                if lane.wants_to_send:
                    lane.push()
                if lane.pending:
                    self._take(lane, exchange)
                self._watch_small(poller, lane, exchange, interest=interest)
                news += exchange.take_queued()
            if not interest:
                return
            news = []
            for fd, event in self._poll(poller, exchange, exchange.lanes, deadline=deadline):
                self._serve(fd, event, exchange)
                if fd in interest:
                    news.append(self._by_fd[fd])
                news += exchange.take_queued()

    def _watch_small(
        self, poller: select.poll, lane: Lane, exchange: Exchange, *, interest: dict[int, int]
    ) -> None:
        """Ask the kernel for what a lane needs; one that is through may be closed by its peer."""
        fd = lane.fileno()
        wanted = (select.POLLIN if exchange.due(lane) else 0) | (
            select.POLLOUT if lane.wants_to_send else 0
        )
        if wanted == interest.get(fd, 0):
            return
        if wanted:
            poller.register(fd, wanted)  # also changes what was asked for before
            interest[fd] = wanted
        else:
            poller.unregister(fd)
            del interest[fd]

    def _poll(
        self,
        poller: select.poll,
        exchange: Exchange,
        lanes: list[Lane],
        *,
        deadline: Deadline,
    ) -> list[tuple[int, int]]:
        events = wait_for_events(poller, deadline)
        if not events and deadline.passed:
            raise DeadlinePassed(self._waiting_for(exchange, lanes), deadline.limit_s)
        return events

    def _watch(
        self,
        poller: select.poll,
        exchange: Exchange,
        lanes: list[Lane],
        *,
        interest: dict[Lane, int],
    ) -> bool:
        """Send, and ask the kernel for what each lane needs; tell whether any still does."""
        busy = False
        self._take_pending(exchange, lanes)
        for lane in lanes:
            if lane.wants_to_send:
                lane.push()
            due, sends = exchange.due(lane), lane.wants_to_send
            wanted = (select.POLLIN if due and not lane.paused else 0) | (
                select.POLLOUT if sends else 0
            )
            busy = busy or due or sends
            # A lane that is through is not watched: a peer that is through may close it.
            wanted = wanted if due or sends else -1
            if interest.get(lane, -1) != wanted:
                if wanted < 0:
                    poller.unregister(lane)
                else:
                    poller.register(lane, wanted)
                interest[lane] = wanted
        return busy

    def _serve(self, fd: int, event: int, exchange: Exchange) -> None:
        lane = self._by_fd.get(fd)
        if lane is None:
            self._nudged()
            return
        if exchange.due(lane) and not lane.paused:
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._take(lane, exchange)
        elif event & (select.POLLHUP | select.POLLERR):
            # Paused, or only sending: whoever hangs up now has not got all that it needs.
            raise PeerLost(lane.peer, "it closed the connection")

    def _take(self, lane: Lane, exchange: Exchange) -> None:
        """Receive what there is and what the exchange has a place for."""
        while exchange.due(lane) and not lane.paused and lane.pull(exchange):
            pass

    def _take_pending(self, exchange: Exchange, lanes: list[Lane]) -> None:
        """Receive what no poll will tell of; taking from one lane may make room for another."""
        ready = [lane for lane in lanes if lane.pending]
        while ready:
            for lane in ready:
                self._take(lane, exchange)
            ready = [e for e in ready if e.pending and not e.paused and exchange.due(e)]

    def _waiting_for(self, exchange: Exchange, lanes: list[Lane]) -> str:
        names = [lane.peer for lane in lanes if exchange.due(lane) or lane.wants_to_send]
        return f"{', '.join(names)} in exchange {self._number} of epoch {self.epoch}"

    # -- leaving ------------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        self._break(ExchangeAborted(reason))
        self._wake()

    def close(self) -> None:
        self.abort("the group was closed")
        self._meeting.leave(self.epoch)
        with self._in_use, self._lock:
            if not self._closed:
                self._closed = True
                self._nudge.close()
                for lane in self._lanes.values():
                    lane.close()

    def _wake(self) -> None:
        with self._lock:
            self._nudge.give()

    def _check(self) -> None:
        """Raise if the group is broken."""
        with self._lock:
            if self._broken is not None:
                raise self._broken

    def _nudged(self) -> None:
        """Clear the nudge; raise if the group is broken."""
        with self._lock:
            if self._broken is not None:
                raise self._broken
            self._nudge.take()

    def _break(self, error: DanausError) -> DanausError:
        """Make ``error`` the end of this group, unless it has one; return the one it has."""
        with self._lock:
            if self._broken is None:
                self._broken = error
                for lane in self._lanes.values():
                    lane.shut()
            return self._broken
