"""Sessions over real sockets."""

from __future__ import annotations

import asyncio

import pytest
from tests.procs.wire.harness import Run

from danaus.core.errors import AddressRefused, ChannelClosed, HandshakeRefused
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions


def test_messages_flow_both_ways_and_close_is_seen(
    run: Run, address: Address, secret: Secret
) -> None:
    async def work() -> None:
        accepted: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(address, secret, accepted.put_nowait)
        a = await open_session(listener.address, secret, b"who I am")
        b = await accepted.get()
        assert b.hello == b"who I am"
        for n in range(500):
            a.send([b"%d" % n])
            b.send([b"back", b"%d" % n])
        for n in range(500):
            assert await b.receive() == [b"%d" % n]
            assert await a.receive() == [b"back", b"%d" % n]
        await a.drain(5.0)
        a.send([b"last"])
        await a.close()
        assert [parts async for parts in b] == [[b"last"]]
        assert (await b.closed).why == "the peer closed it"
        with pytest.raises(ChannelClosed):
            a.send([b"too late"])
        await listener.close()

    run(work())


def test_a_handler_that_is_a_coroutine_is_run(run: Run, address: Address, secret: Secret) -> None:
    async def echo(session: Session) -> None:
        async for parts in session:
            session.send(parts)

    async def work() -> None:
        listener = await serve_sessions(address, secret, echo)
        session = await open_session(listener.address, secret)
        for n in range(10):
            session.send([b"%d" % n])
            assert await session.receive() == [b"%d" % n]
        await session.close()
        await listener.close()

    run(work())


def test_the_wrong_secret_and_an_empty_address_are_refused(
    run: Run, address: Address, secret: Secret
) -> None:
    async def work() -> None:
        listener = await serve_sessions(address, secret, lambda session: None)
        with pytest.raises(HandshakeRefused, match="secret"):
            await open_session(listener.address, Secret.generate())
        await listener.close()
        with pytest.raises(AddressRefused):
            await open_session(listener.address, secret, open_limit_s=0.05)

    run(work())
