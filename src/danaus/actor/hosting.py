"""The actors that live in this process: their birth, their messages, their end.

On the connections' loop, except ``deliver_here``.  Supervision decides when an actor may clean up;
see ``supervising``.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from danaus.actor.cast_messages import Cast
from danaus.actor.cell import ActorCell, CellHost
from danaus.actor.contexts import Context, ProcessInfo
from danaus.actor.exits import stop_words
from danaus.actor.failure import Fault
from danaus.actor.identity import CONTROLLERS, ProcessRef
from danaus.actor.links import Deliveries, Link, LocalLink, Parts, Peer
from danaus.actor.loop_thread import LoopThread
from danaus.actor.portable import packed_exception, packed_fault
from danaus.actor.process_messages import (
    ActorFailed,
    AdoptActor,
    CancelCall,
    Deliver,
    DeliverAgain,
    Gone,
    PortRaised,
    PortValue,
    ProcessMessage,
    Raised,
    Returned,
    SetLogLevel,
    SpawnActor,
    StopActor,
)
from danaus.actor.relays import Relays
from danaus.actor.supervision_messages import (
    ActorGone,
    ActorHosted,
    ActorKey,
    ActorLeaving,
    Event,
    ProcessName,
)
from danaus.core.extent import Extent

_EARLY_LIMIT_S = 5.0
_LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"
_REMEMBERED = 10_000
_UNTOLD = 100  # failures of an actor whose owner is away: the newest


_log = logging.getLogger("danaus.actor")


class Linking(Protocol):
    """What a process is connected with."""

    def link(self, ref: ProcessRef) -> Link:
        """Return the link to a process."""


class HostingProcess(CellHost, Protocol):
    """The process, as it is seen from here."""

    @property
    def info(self) -> ProcessInfo:
        """Who this process is."""

    @property
    def connections(self) -> Linking:
        """What it is connected with."""

    def handle(self, event: Event) -> None:
        """Tell the supervision machine."""

    def make_controllers(self) -> None:
        """Make the actor that knows a job's controllers."""


class Hosting:
    """All actors of this process.

    Args:
        process: The process.
    """

    def __init__(self, process: HostingProcess) -> None:
        self._process = process
        self._cells: dict[ActorKey, ActorCell] = {}
        self._relays = Relays(self)
        self._early: dict[ActorKey, list[tuple[Deliver, Parts, Peer]]] = {}
        self._refused: OrderedDict[ActorKey, dict[str, int]] = OrderedDict()  # the last by sender
        self._past: OrderedDict[ActorKey, str] = OrderedDict()
        self._dead: OrderedDict[ActorKey, ActorCell] = OrderedDict()  # that never came to be
        self._again: dict[ActorKey, Parts] = {}
        self._untold: dict[ActorKey, deque[tuple[ProcessMessage, Parts]]] = {}
        self._stopping: dict[ActorKey, list[Callable[[Fault | None], None]]] = {}

    @property
    def io(self) -> LoopThread:
        """The connections' loop."""
        return self._process.io

    def link(self, ref: ProcessRef) -> Link:
        """Return the link to a process."""
        return self._process.connections.link(ref)

    def get(self, key: ActorKey) -> ActorCell | None:
        """Return an actor that lives here."""
        return self._cells.get(key)

    def take(self, message: ProcessMessage, parts: Parts, peer: Peer) -> None:
        """Handle one request."""
        match message:
            case Deliver():
                self._deliver(message, parts, peer)
            case Cast():
                self._relays.take(message, parts, peer)
            case DeliverAgain():
                self._relays.again(message.message, parts, peer)
            case PortValue() | PortRaised():
                self._process.ports.take(message, parts)
            case CancelCall():
                self._relays.cancel(peer, message.call)
                self._process.ports.forget(peer, message.call)
                for cell in self._cells.values():
                    cell.cancel(peer, message.call)
            case _:
                self._take_orders(message, parts, peer)

    def _take_orders(self, message: ProcessMessage, parts: Parts, peer: Peer) -> None:
        match message:
            case SpawnActor():
                self._spawn(message, parts, peer)
            case AdoptActor():
                self._adopt(message, parts, peer)
            case StopActor():
                key = ActorKey(message.mesh_id, message.rank)
                answer = functools.partial(_answer_stop, peer, message)
                self.stop(key, answer, message.reason)
            case SetLogLevel():
                logging.basicConfig(format=_LOG_FORMAT)  # unless users' code has done it
                logging.getLogger().setLevel(message.level)

    # -- birth ---------------------------------------------------------------------------------

    def _spawn(self, message: SpawnActor, parts: Parts, peer: Peer) -> None:
        key = ActorKey(message.mesh_id, message.rank)
        living = self._cells.get(key)
        if living is not None and message.again:
            living.owner = peer
            self._again[key] = parts
            living.pause(lambda: self._process.handle(ActorLeaving(key)))
            return
        self._past.pop(key, None)
        dead = self._dead.pop(key, None)
        if dead is not None:
            self._cells[key], dead.owner = dead, peer
            self._host(dead, key)
            dead.revive(parts)
            return
        context = Context(
            proc=self._process.info,
            actor_name=message.name,
            actor_key=key,
            point=Extent(message.axes, message.sizes).point(message.rank),
            creator=message.creator,
        )
        cell = ActorCell(self._process, context, peer)
        for sender, number in self._refused.pop(key, {}).items():
            cell.skip(sender, number)
        self._cells[key] = cell  # from here on whoever reads the connections delivers to it
        self._host(cell, key)
        cell.construct(parts, message.call)
        for early, its_parts, its_peer in self._early.pop(key, ()):
            cell.deliver([(early, its_parts)], its_peer)

    def _adopt(self, message: AdoptActor, parts: Parts, peer: Peer) -> None:
        """Let an actor have another owner, since the one that it had was started again (A-12)."""
        key = ActorKey(message.mesh_id, message.rank)
        cell = self._cells.get(key)
        if cell is not None:
            cell.owner = peer
            peer.send(Returned(message.call))
        elif parts and key not in self._past:  # the owner died before it could have it made
            facts = (message.name, message.rank, message.axes, message.sizes)
            self._spawn(SpawnActor(message.call, message.mesh_id, *facts), parts, peer)
        else:
            why = self._past.get(key, "there is no such actor in this process")
            peer.send(Gone(message.call, str(key), why))
        for untold, its_parts in self._untold.pop(key, ()):
            peer.send(untold, its_parts)

    def tell_owner(self, cell: ActorCell, message: ProcessMessage, parts: Parts) -> None:
        """Tell an actor's owner of a failure; one that is away is told once it is back (A-12)."""
        key = cell.context.actor_key
        if key is not None and cell.owner.is_away:
            self._untold.setdefault(key, deque(maxlen=_UNTOLD)).append((message, parts))
        else:
            cell.owner.send(message, parts)

    def _host(self, cell: ActorCell, key: ActorKey) -> None:
        remote, context = not isinstance(cell.owner, LocalLink), cell.context
        self._process.handle(ActorHosted(key, context.actor_name, context.point, remote))

    def _begin_again(self, cell: ActorCell, key: ActorKey, parts: Parts) -> None:
        def cleaned_up() -> None:
            self._process.handle(ActorGone(key))
            self._host(cell, key)

        cell.begin_again(parts, cleaned_up)

    def actor_failed(self, cell: ActorCell, fault: Fault, fatal: bool) -> None:
        """Tell the owner's process of a failure that nobody waits for (A-6)."""
        key = cell.context.actor_key
        if key is None:
            return
        self.tell_owner(cell, ActorFailed(key.mesh_id, key.rank, fatal), packed_fault(fault))
        if fatal:
            self._cells.pop(key, None)
            self._dead[key] = cell  # one that takes its place has had what it has had
            while len(self._dead) > _REMEMBERED:
                self._dead.popitem(last=False)
            for then in self._stopping.pop(key, ()):
                then(None)
            self._remember(key, cell.gone_why)
            self._process.handle(ActorGone(key))

    # -- messages ------------------------------------------------------------------------------

    def deliver_many(self, messages: Deliveries, peer: Peer) -> None:
        """Hand messages that arrived together to their actors, each run for one of them at once."""
        for message, parts in self.deliver_here(messages, peer):
            self._deliver(message, parts, peer)

    def deliver_here(self, messages: Deliveries, peer: Peer) -> Deliveries:
        """Hand messages to actors that live here, from any thread; return those for others."""
        mine = self._process.info.incarnation
        others: Deliveries = []
        for (mesh_id, rank, incarnation), run in itertools.groupby(messages, _receiver):
            cell = self._cells.get(ActorKey(mesh_id, rank))
            if cell is not None and incarnation == mine:
                cell.deliver(list(run), peer)
            else:
                others.extend(run)
        return others

    def _deliver(self, message: Deliver, parts: Parts, peer: Peer) -> None:
        key = ActorKey(message.mesh_id, message.rank)
        cell = self._cells.get(key)
        if message.incarnation != self._process.info.incarnation:
            _refuse(message, peer, f"the message is for incarnation {message.incarnation}")
        elif cell is not None:
            cell.deliver([(message, parts)], peer)
        elif key in self._dead:
            self._dead[key].deliver([(message, parts)], peer)
        elif key in self._past:
            _refuse(message, peer, self._past[key])
        else:
            # A reference may travel faster than the order to make what it refers to.
            if key.mesh_id == CONTROLLERS and key not in self._early:
                self._process.make_controllers()
            if key not in self._early:
                loop = asyncio.get_running_loop()
                loop.call_later(_EARLY_LIMIT_S, self._refuse_early, key)
            self._early.setdefault(key, []).append((message, parts, peer))

    def _refuse_early(self, key: ActorKey) -> None:
        for message, _, peer in self._early.pop(key, ()):
            _refuse(message, peer, "there is no such actor in this process")
            self._refused.setdefault(key, {})[message.sender] = message.number
        while len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)

    # -- the end -------------------------------------------------------------------------------

    def stop(self, key: ActorKey, then: Callable[[Fault | None], None], reason: str = "") -> None:
        """Drain, let what it owns end, clean up; ``then`` gets what ``__cleanup__`` raised."""
        cell = self._cells.get(key)
        if cell is None:
            then(None)
        elif key in self._stopping:
            self._stopping[key].append(then)
        else:
            self._stopping[key] = [then]
            leave = functools.partial(self._process.handle, ActorLeaving(key))
            cell.drain(leave, stop_words(reason))

    def owner_gone(self, process: ProcessName) -> None:
        """Stop the actors whose mesh was spawned by a worker that is gone (A-7)."""
        for key, cell in list(self._cells.items()):
            owner = cell.owner.worker
            if owner is not None and ProcessName(owner.job, owner.process_id) == process:
                self.stop(key, lambda _: None)

    def stop_all(self, then: Callable[[], None], reason: str = "") -> None:
        """Stop every actor that lives here."""
        left = set(self._cells)
        if not left:
            then()
            return

        def one_less(key: ActorKey) -> None:
            left.discard(key)
            if not left:
                then()

        for key in reversed(list(self._cells)):
            self.stop(key, lambda _, key=key: one_less(key), reason)  # type: ignore[misc]

    def clean_up(self, key: ActorKey) -> None:
        """Everything the actor owned has ended (said by supervision)."""
        cell = self._cells.get(key)
        again = self._again.pop(key, None)
        if cell is not None and again is not None:
            self._begin_again(cell, key, again)
        elif cell is not None:
            cell.clean_up(lambda fault: self._cleaned_up(key, fault))

    def _cleaned_up(self, key: ActorKey, fault: Fault | None) -> None:
        if fault is not None:  # whoever stops it is told too, if somebody does
            _log.error("__cleanup__ of %s raised %s\n%s", key, fault.reason, fault.traceback)
        cell = self._cells.pop(key, None)
        self._untold.pop(key, None)
        self._remember(key, cell.gone_why if cell is not None else stop_words(""))
        self._process.handle(ActorGone(key))
        for then in self._stopping.pop(key, ()):
            then(fault)

    def _remember(self, key: ActorKey, why: str) -> None:
        self._process.ports.abandon(key, why)
        self._past[key] = why
        while len(self._past) > _REMEMBERED:
            self._past.popitem(last=False)


def _receiver(delivery: tuple[Deliver, Parts]) -> tuple[str, int, int]:
    message = delivery[0]
    return message.mesh_id, message.rank, message.incarnation


def _refuse(message: Deliver, peer: Peer, why: str) -> None:
    if message.call:
        peer.send(Gone(message.call, f"{message.mesh_id}/{message.rank}", why))


def _answer_stop(peer: Peer, message: StopActor, fault: Fault | None) -> None:
    if fault is None:
        peer.send(Returned(message.call))
    else:
        actor = f"{message.mesh_id}/{message.rank}"
        answer = Raised(message.call, actor, "__cleanup__", fault.reason, fault.traceback)
        peer.send(answer, packed_exception(fault.exception))
