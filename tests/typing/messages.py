"""What a user's type checker is told of adverbs, ports and futures.  Nobody runs it."""

from __future__ import annotations

import asyncio
from typing import assert_type

from danaus.actor import (
    Accumulator,
    Actor,
    ActorMesh,
    Channel,
    Endpoint,
    Future,
    Port,
    PortReceiver,
    Replies,
    ValueMesh,
    as_endpoint,
    concurrent_endpoint,
    endpoint,
    returns_future,
    send,
    wait_all,
)


class Server(Actor):
    @endpoint
    def add(self, k: int) -> int:
        return k

    @endpoint(instrument=True, propagate="cached")
    def seen(self, k: int) -> str:
        return str(k)

    @endpoint(idempotent=True)
    def look(self, name: str) -> bytes:
        return name.encode()

    @endpoint(idempotent=True)
    async def look_async(self, name: str) -> bytes:
        return name.encode()

    @endpoint(explicit_response_port=True)
    def later(self, port: Port[str], k: int) -> None:
        port.send(str(k))
        port.send(k)  # type: ignore[arg-type]

    @concurrent_endpoint(explicit_response_port=True, idempotent=True)
    async def later_async(self, port: Port[float], k: int) -> None:
        port.exception(ValueError(k))

    def plain(self, k: int) -> list[int]:
        return [k]

    async def plain_async(self, k: int) -> list[int]:
        return [k]

    def plain_with_port(self, port: Port[int], k: str) -> None:
        port.send(len(k))


def adverbs(servers: ActorMesh[Server]) -> None:
    assert_type(servers.add.choose(1), Future[int])
    assert_type(servers.add.stream(1), Replies[int])
    assert_type([reply.get() for reply in servers.add.stream(1)], list[int])
    assert_type(servers.look.call("a"), Future[ValueMesh[bytes]])
    assert_type(servers.look_async.with_options(retries=2).call_one("a"), Future[bytes])
    assert_type(servers.later.call_one(1), Future[str])
    assert_type(servers.later_async.call(1), Future[ValueMesh[float]])
    assert_type(servers.seen.call_one(1), Future[str])
    servers.add.choose("one")  # type: ignore[arg-type]
    servers.add.stream()  # type: ignore[call-arg]
    servers.later.call_one()  # type: ignore[call-arg]
    servers.later.call_one("one")  # type: ignore[arg-type]


def methods(servers: ActorMesh[Server]) -> None:
    assert_type(as_endpoint(servers.plain).call_one(1), Future[list[int]])
    assert_type(as_endpoint(servers.plain_async).call_one(1), Future[list[int]])
    ported = as_endpoint(servers.plain_with_port, explicit_response_port=True)
    assert_type(ported.call_one("a"), Future[int])
    as_endpoint(servers.plain).call_one("one")  # type: ignore[arg-type]


def ports(servers: ActorMesh[Server]) -> None:
    port, receiver = Channel[int].open()
    assert_type(port, Port[int])
    assert_type(receiver, PortReceiver[int])
    assert_type(receiver.recv(), Future[int])
    assert_type(port.return_undeliverable, bool)
    assert_type(receiver.ranked().recv().get(), tuple[int, int])
    send(servers.add, (1,), {}, port=port)
    send(servers.add, (1,), {}, port, "choose")
    send(servers.look, ("a",), port=port)  # type: ignore[misc]
    send(servers.add, (1,), selection="some")  # type: ignore[arg-type]


def combining(servers: ActorMesh[Server]) -> None:
    counted = Accumulator(servers.look, 0, lambda so_far, value: so_far + len(value))
    assert_type(counted.accumulate("a"), Future[int])
    counted.accumulate(1)  # type: ignore[arg-type]
    assert_type(wait_all([servers.add.choose(1), servers.add.call_one(2)]), Future[list[int]])


async def awaiting(servers: ActorMesh[Server], port: PortReceiver[str]) -> None:
    async for reply in servers.add.stream(1):
        assert_type(reply, Future[int])
    async for word in port:
        assert_type(word, str)
    call = servers.add.call_one(1)
    assert_type(await call, int)
    assert_type(call.as_asyncio(), asyncio.Future[int])
    assert_type(call.exception(), BaseException | None)
    assert_type(call.result(timeout=1.0), int)


def passing_on(servers: ActorMesh[Server]) -> Endpoint[[int], str]:
    return servers.later


@returns_future
async def added(a: int, b: int) -> str:
    return str(a + b)


assert_type(added(1, 2), Future[str])
added(1, "2")  # type: ignore[arg-type]
