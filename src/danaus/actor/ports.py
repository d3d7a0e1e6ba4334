"""Ports: where values are sent that are nobody's return value.

Owns ``Channel``, ``Port``, ``PortReceiver`` and the table of the ports that belong to one process.
A port is a reference: it pickles and can be sent on from anywhere (A-10).  What arrives is
unpacked on the thread that asks for it.

Invariants:
    A-1: what one process sends on one port arrives in that order.
    A-4: an endpoint with a response port answers its caller once: by the port, by raising, or by
        the end of its actor.
"""

from __future__ import annotations

import collections
import functools
import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from danaus.actor.future import Future
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Parts, Peer
from danaus.actor.owned import actor_error, supervision_error
from danaus.actor.portable import packed_exception, unpacked
from danaus.actor.process_messages import Gone, PortRaised, PortValue, Raised, Returned
from danaus.actor.supervision_messages import ActorKey, ProcessName
from danaus.core.errors import ChannelClosed
from danaus.wire.codec import own, pack, unpack

R = TypeVar("R")
V = TypeVar("V")

NO_RANK = -1
PortMessage = PortValue | PortRaised


class Box(Protocol):
    """What a port of this process leads to; on the connections' loop."""

    def put(self, message: PortMessage, parts: Parts) -> bool:
        """Take what arrived; false: nothing more may come."""


class PortTable:
    """The ports that belong to this process."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        # A receiver that nobody holds any more is closed with that.
        self._mailboxes: weakref.WeakValueDictionary[int, Box] = weakref.WeakValueDictionary()
        self._replies: dict[int, Reply] = {}

    def open(self, mailbox: Box) -> int:
        """Return the number of a new port that leads to ``mailbox``; from any thread."""
        number = next(self._numbers)
        self._mailboxes[number] = mailbox
        return number

    def open_reply(self, reply: Reply) -> int:
        """Return the number of a new port that answers a call; from any thread."""
        number = next(self._numbers)
        if not reply.call:
            return number  # nobody waits: what is sent there is dropped
        self._replies[number] = reply
        return number

    def close(self, number: int) -> None:
        """Take nothing more for this port; from any thread."""
        self._mailboxes.pop(number, None)
        self._replies.pop(number, None)

    def take(self, message: PortMessage, parts: Parts) -> None:
        """Hand over what arrived for a port; what nobody waits for any more is dropped."""
        box = self._mailboxes.get(message.port) or self._replies.get(message.port)
        if box is not None and not box.put(message, parts):
            self.close(message.port)

    def abandon(self, actor: ActorKey, why: str) -> None:
        """Answer the calls that an actor has left open: it is gone."""
        for number, reply in list(self._replies.items()):
            if reply.actor == actor:
                self.close(number)
                reply.peer.send(Gone(reply.call, reply.name, why))

    def forget(self, peer: Peer, call: int) -> bool:
        """Let nobody answer this call any more; false: it was not open."""
        found = [n for n, each in self._replies.items() if (each.peer, each.call) == (peer, call)]
        for number in found:
            self.close(number)
        return bool(found)


@dataclass(frozen=True)
class Reply:
    """The caller of an endpoint that answers through a port.

    Args:
        actor: Whose endpoint.
        name: Of the actor, for messages.
        endpoint: Which.
        peer: Where the caller is.
        call: Which of its calls; 0: it does not wait.
    """

    actor: ActorKey | None
    name: str
    endpoint: str
    peer: Peer
    call: int

    def put(self, message: PortMessage, parts: Parts) -> bool:
        """Answer; what is sent after the answer is dropped."""
        match message:
            case PortValue():
                self.peer.send(Returned(self.call), parts)
            case PortRaised(exception=said, traceback=text):
                self.peer.send(Raised(self.call, self.name, self.endpoint, said, text), parts)
        return False


class PortHost(Protocol):
    """The process, as a port sees it."""

    @property
    def ports(self) -> PortTable:
        """Its ports."""


class Port(Generic[R]):
    """Where values can be sent, from anywhere, in order.

    Args:
        ref: The process that the port belongs to.
        number: Which of its ports.
        rank: The sender's rank, told to ``PortReceiver.ranked()``; -1: none.
        return_undeliverable: Whether to send raises once the process is known to be gone.
    """

    def __init__(
        self,
        ref: ProcessRef,
        number: int,
        rank: int = NO_RANK,
        *,
        return_undeliverable: bool = True,
    ) -> None:
        self.return_undeliverable = return_undeliverable
        self._ref = ref
        self._number = number
        self._rank = rank
        self._lost_why = ""

    def send(self, obj: R) -> None:
        """Send a value and wait for nobody.

        Raises:
            SupervisionError: The process that the port belongs to is known to be gone.
        """
        self._send(PortValue(self._number, self._rank), own(pack(obj)))

    def exception(self, obj: Exception) -> None:
        """Send an exception: it is raised where the value is asked for.

        Raises:
            SupervisionError: The process that the port belongs to is known to be gone.
        """
        said = f"{type(obj).__name__}: {obj}"
        text = "".join(traceback.format_exception(obj))
        message = PortRaised(self._number, self._rank, True, "a port", "exception", said, text)
        self._send(message, packed_exception(obj))

    @property
    def number(self) -> int:
        """Which of its process's ports it is."""
        return self._number

    def forward(self, message: PortMessage, parts: Parts) -> None:
        """Send what was packed elsewhere; a port that is gone swallows it."""
        from danaus.actor.process_runtime import get_runtime

        runtime = get_runtime()
        runtime.io.post(self._post, runtime, message, parts)

    def _send(self, message: PortMessage, parts: Parts) -> None:
        from danaus.actor.process_runtime import get_runtime

        runtime = get_runtime()
        fault = runtime.fault_of(ProcessName(self._ref.job, self._ref.process_id))
        why, self._lost_why = fault.reason if fault else self._lost_why, ""
        if why and self.return_undeliverable:
            raise supervision_error(str(self), why, fault)
        runtime.io.post(self._post, runtime, message, parts)

    def _post(self, runtime: Any, message: PortMessage, parts: Parts) -> None:
        link = runtime.connections.link(self._ref)
        link.post(lambda _: message, parts, None)
        self._lost_why = link.fault_why  # the next one to send hears of it

    def __repr__(self) -> str:
        return f"port {self._number} of {self._ref.process_id}"

    def __reduce__(self) -> tuple[Any, ...]:
        from danaus.actor.process_runtime import get_runtime

        runtime = get_runtime()
        is_mine = self._ref.process_id == runtime.info.process_id
        ref = runtime.connections.ref() if is_mine else self._ref
        port = functools.partial(Port, return_undeliverable=self.return_undeliverable)
        return port, (ref, self._number, self._rank)


class Mailbox:
    """What has arrived at a port and was not asked for yet, and who has asked in vain.

    Args:
        once: Take one value only.
    """

    def __init__(self, once: bool) -> None:
        self.once = once
        self.closed_why = ""
        self._lock = threading.Lock()
        self._arrived: collections.deque[Arrival] = collections.deque()
        self._asked: collections.deque[Future[Any]] = collections.deque()

    def put(self, message: PortMessage, parts: Parts) -> bool:
        """Take what arrived; false: it was the only one."""
        arrival = Arrival(message, parts)
        with self._lock:
            if self.closed_why:
                return False
            if self.once:
                self.closed_why = "its one value was taken"
            while self._asked:
                # One that was cancelled leaves its turn to the next.
                if self._asked.popleft().set_value(arrival):
                    break
            else:
                self._arrived.append(arrival)
            left = self._close_asked() if self.once else ()
        self._refuse(left)
        return not self.once

    def ask(self, decode: Callable[[Arrival], V]) -> Future[V]:
        """Return a future of what arrived first, or will arrive next."""

        def opened(arrival: Arrival, _: Mailbox = self) -> V:
            # Whoever waits keeps the port open, also where nobody holds the receiver any more.
            return decode(arrival)

        future: Future[V] = Future("a value from a port", decode=opened)
        with self._lock:
            if self._arrived:
                future.set_value(self._arrived.popleft())
            elif self.closed_why:
                future.set_error(ChannelClosed("a port", self.closed_why))
            else:
                self._asked.append(future)
        return future

    def close(self) -> None:
        """Take nothing more; whoever waits is told."""
        with self._lock:
            self.closed_why = self.closed_why or "it was closed"
            left = self._close_asked()
        self._refuse(left)

    def _close_asked(self) -> Sequence[Future[Any]]:
        left, self._asked = self._asked, collections.deque()
        return left

    def _refuse(self, futures: Sequence[Future[Any]]) -> None:
        for future in futures:
            future.set_error(ChannelClosed("a port", self.closed_why))


@dataclass(frozen=True)
class Arrival:
    """One message that came to a port."""

    message: PortMessage
    parts: Parts

    def value(self) -> Any:
        """Return the value, or raise the exception that was sent instead."""
        match self.message:
            case PortValue():
                return unpack(self.parts)
            case PortRaised(as_is=as_is):
                error = unpacked(self.parts, Exception) if self.parts else None
                if as_is and error is not None:
                    raise error
                raise actor_error(self.message) from error


class PortReceiver(Generic[R]):
    """The receiving end of a port; it stays in the process that opened it.

    The port closes when nobody holds its receiver any more.
    """

    def __init__(self, mailbox: Mailbox, number: int, host: PortHost) -> None:
        self._mailbox = mailbox
        self._number = number
        self._host = host

    def recv(self) -> Future[R]:
        """Return a future of the next value, in the order of arrival.

        It raises what was sent with ``Port.exception``, and ``ChannelClosed`` once nothing can
        come any more.  Nobody else ends it: give ``get`` a limit where senders may fail.
        """
        return self._mailbox.ask(lambda arrival: arrival.value())

    def ranked(self) -> RankedPortReceiver[R]:
        """Return the same receiver, telling of each value the rank of its sender too."""
        return RankedPortReceiver(self._mailbox, self._number, self._host)

    def close(self) -> None:
        """Take nothing more; what has arrived can still be had."""
        self._host.ports.close(self._number)
        self._mailbox.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        try:
            return await self.recv()
        except ChannelClosed:
            raise StopAsyncIteration from None


class RankedPortReceiver(Generic[R]):
    """As ``PortReceiver``, with ranks."""

    def __init__(self, mailbox: Mailbox, number: int, host: PortHost) -> None:
        self._mailbox = mailbox
        self._number = number
        self._host = host

    def recv(self) -> Future[tuple[int, R]]:
        """Return a future of ``(rank, value)``; rank -1 was sent by nobody in particular."""
        return self._mailbox.ask(lambda arrival: (arrival.message.rank, arrival.value()))


class Channel(Generic[R]):
    """Makes ports."""

    @staticmethod
    def open(once: bool = False) -> tuple[Port[R], PortReceiver[R]]:
        """Return a new port and its receiver.

        Args:
            once: One value only, or one exception; what is sent after it is dropped.
        """
        from danaus.actor.process_runtime import get_runtime

        runtime = get_runtime()
        mailbox = Mailbox(once)
        number = runtime.ports.open(mailbox)
        ref = ProcessRef(runtime.info.process_id, "", "", "")
        return Port(ref, number), PortReceiver(mailbox, number, runtime)

    @staticmethod
    def open_ranked(once: bool = False) -> tuple[Port[R], RankedPortReceiver[R]]:
        """Return what ``open`` does, with a receiver that tells the ranks of senders."""
        port, receiver = Channel[R].open(once)
        return port, receiver.ranked()
