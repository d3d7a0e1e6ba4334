"""A small key-value store in which processes of a group find each other (W-5).

Owns the table (a pure machine), what is said with it, and its server.  The client is in
``store_client``; a torch ``Store`` over it is the collectives room's.

Invariants:
    A request is carried out once, however often it is repeated over new connections: each client
    numbers its requests, and the table remembers its last answers.
    Nothing pickled: keys are text, values are bytes.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import threading
from dataclasses import dataclass

import msgspec

from danaus.core.errors import ChannelClosed, DanausError, DeadlinePassed, FrameDamaged
from danaus.wire.address import Address
from danaus.wire.channel import Channel, Listener, listen
from danaus.wire.codec import Codec
from danaus.wire.frame import Frame
from danaus.wire.secret import Secret

CLIENT_ID_BYTES = 16
_MAX_REMEMBERED = 256
_THREAD_LIMIT_S = 10.0
_log = logging.getLogger("danaus.wire")


# -- what is said ----------------------------------------------------------------------------


class Set(msgspec.Struct, frozen=True, tag="set"):
    """Give a key a value."""

    number: int
    key: str
    value: bytes


class Get(msgspec.Struct, frozen=True, tag="get"):
    """Return a key's value, once it has one."""

    number: int
    key: str


class Add(msgspec.Struct, frozen=True, tag="add"):
    """Add to a key's value, a decimal number (none: 0); return the sum."""

    number: int
    key: str
    amount: int


class Append(msgspec.Struct, frozen=True, tag="append"):
    """Append to a key's value (none: empty)."""

    number: int
    key: str
    value: bytes


class CompareSet(msgspec.Struct, frozen=True, tag="compare_set"):
    """Set a key if it has the expected value (or none and empty is expected); return its value."""

    number: int
    key: str
    expected: bytes
    desired: bytes


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Answer once all keys have values."""

    number: int
    keys: tuple[str, ...]


class Check(msgspec.Struct, frozen=True, tag="check"):
    """Tell whether all keys have values."""

    number: int
    keys: tuple[str, ...]


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Remove a key, or every key that begins with it; tell whether there was one."""

    number: int
    key: str
    is_prefix: bool = False


class Count(msgspec.Struct, frozen=True, tag="count"):
    """Return how many keys there are."""

    number: int


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer to the request of that number; ``count`` for numbers and booleans.

    ``refused`` says in words why the request cannot be carried out.
    """

    number: int
    value: bytes = b""
    count: int = 0
    refused: str = ""


Request = Set | Get | Add | Append | CompareSet | Wait | Check | Delete | Count
REQUESTS: Codec[Request] = Codec(Request)
ANSWERS: Codec[Answer] = Codec(Answer)


# -- the table -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Waiting:
    client: bytes
    connection: int
    request: Get | Wait


class StoreTable:
    """Keys, values, and who waits for them; pure: answers are returned, not sent."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._answered: dict[bytes, collections.OrderedDict[int, Answer]] = {}
        self._waiting: list[_Waiting] = []

    def handle(self, client: bytes, connection: int, request: Request) -> list[tuple[int, Answer]]:
        """Carry out a request; return the answers it leads to and the connections they go to.

        Args:
            client: Who asks, over all its connections.
            connection: Where this request came from.
            request: What is asked.
        """
        answered = self._answered.setdefault(client, collections.OrderedDict())
        if request.number in answered:
            return [(connection, answered[request.number])]
        if isinstance(request, Get | Wait) and not self._has(_keys(request)):
            self._waiting.append(_Waiting(client, connection, request))
            return []
        answers = [(connection, self._remember(client, self._apply(request)))]
        if isinstance(request, Set | Add | Append | CompareSet):
            answers += self._release()
        return answers

    def gone(self, connection: int) -> None:
        """Forget what waits on a connection; a client that still wants it asks again."""
        self._waiting = [each for each in self._waiting if each.connection != connection]

    def _release(self) -> list[tuple[int, Answer]]:
        ready = [each for each in self._waiting if self._has(_keys(each.request))]
        if ready:
            self._waiting = [each for each in self._waiting if each not in ready]
        return [
            (each.connection, self._remember(each.client, self._apply(each.request)))
            for each in ready
        ]

    def _remember(self, client: bytes, answer: Answer) -> Answer:
        answered = self._answered[client]
        answered[answer.number] = answer
        if len(answered) > _MAX_REMEMBERED:
            answered.popitem(last=False)
        return answer

    def _has(self, keys: tuple[str, ...]) -> bool:
        return all(key in self._values for key in keys)

    def _apply(self, request: Request) -> Answer:
        match request:
            case Get(number, key):
                return Answer(number, self._values[key])
            case Wait(number):
                return Answer(number)
            case Check(number, keys):
                return Answer(number, count=int(self._has(keys)))
            case Count(number):
                return Answer(number, count=len(self._values))
            case _:
                return self._change(request)

    def _change(self, request: Set | Add | Append | CompareSet | Delete) -> Answer:
        match request:
            case Set(number, key, value):
                self._values[key] = value
                return Answer(number)
            case Add(number, key, amount):
                return self._add(number, key, amount)
            case Append(number, key, value):
                self._values[key] = self._values.get(key, b"") + value
                return Answer(number)
            case CompareSet(number, key, expected, desired):
                if self._values.get(key, b"") == expected:
                    self._values[key] = desired
                return Answer(number, self._values.get(key, b""))
            case Delete(number, key, is_prefix):
                return Answer(number, count=self._delete(key, is_prefix=is_prefix))

    def _add(self, number: int, key: str, amount: int) -> Answer:
        try:
            total = int(self._values.get(key, b"0")) + amount
        except ValueError:
            return Answer(number, refused=f"the value of {key!r} is no number")
        self._values[key] = str(total).encode()
        return Answer(number, count=total)

    def _delete(self, key: str, *, is_prefix: bool) -> int:
        doomed = [each for each in self._values if each.startswith(key)] if is_prefix else [key]
        return sum(self._values.pop(each, None) is not None for each in doomed)


def _keys(request: Get | Wait) -> tuple[str, ...]:
    return (request.key,) if isinstance(request, Get) else request.keys


# -- the server ------------------------------------------------------------------------------


class StoreServer:
    """Serves one table on an asyncio loop; made by ``serve_store``."""

    def __init__(self) -> None:
        self._table = StoreTable()
        self._channels: dict[int, Channel] = {}
        self._next = 0
        self._listener: Listener | None = None

    @property
    def address(self) -> Address:
        """Where it is bound, with the real port."""
        assert self._listener is not None
        return self._listener.address

    async def listen(self, address: Address, secret: Secret) -> None:
        """Begin to serve at ``address``."""
        self._listener = await listen(address, secret, self.accept)

    def accept(self, channel: Channel) -> None:
        """Serve one more connection; its hello is the client's id."""
        if len(channel.hello) != CLIENT_ID_BYTES:
            _log.warning("%s", FrameDamaged(channel.peer, "not a client of a store"))
            channel.close()
            return
        connection = self._next
        self._next += 1
        self._channels[connection] = channel

        def on_frames(frames: list[Frame]) -> None:
            for frame in frames:
                self._frame(connection, frame)

        channel.attach(on_frames, lambda error: self._lost(connection, error))

    async def close(self) -> None:
        """Stop serving; clients that wait see their connection close."""
        if self._listener is not None:
            await self._listener.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _frame(self, connection: int, frame: Frame) -> None:
        channel = self._channels.get(connection)
        if channel is None:
            return
        try:
            if len(frame.parts) != 1:
                raise FrameDamaged(channel.peer, f"{len(frame.parts)} parts are no request")
            request = REQUESTS.decode(frame.parts[0], channel.peer)
        except FrameDamaged as damage:
            _log.warning("%s", damage)
            channel.close()
            self._lost(connection, damage)
            return
        for where, answer in self._table.handle(channel.hello, connection, request):
            if where in self._channels:
                with contextlib.suppress(ChannelClosed):  # it asks again over a new one
                    self._channels[where].push([ANSWERS.encode(answer)])

    def _lost(self, connection: int, _: DanausError) -> None:
        self._channels.pop(connection, None)
        self._table.gone(connection)


async def serve_store(address: Address, secret: Secret) -> StoreServer:
    """Serve an empty table at ``address`` on the running loop.

    Raises:
        AddressRefused: The address cannot be bound.
    """
    server = StoreServer()
    await server.listen(address, secret)
    return server


class StoreThread:
    """Serves an empty table from a daemon thread, for programs without a loop.

    Args:
        address: Where to bind; port 0 takes a free one.
        secret: The job's secret.

    Attributes:
        address: Where it is bound, with the real port.

    Raises:
        AddressRefused: The address cannot be bound.
    """

    def __init__(self, address: Address, secret: Secret) -> None:
        self._ready = threading.Event()
        self._failure: DanausError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.address = address
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(address, secret)),
            name="danaus store",
            daemon=True,
        )
        self._thread.start()
        if not self._ready.wait(_THREAD_LIMIT_S):
            raise DeadlinePassed("the store's thread", _THREAD_LIMIT_S)
        if self._failure is not None:
            raise self._failure

    async def _serve(self, address: Address, secret: Secret) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            server = await serve_store(address, secret)
        except DanausError as error:
            self._failure = error
            self._ready.set()
            return
        self.address = server.address
        self._ready.set()
        await self._stop.wait()
        await server.close()

    def close(self) -> None:
        """Stop serving and end the thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop was closed in between
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_THREAD_LIMIT_S)
