"""A controller of two jobs: each thing that happens there is put down to the job it came from."""

from __future__ import annotations

import asyncio
from pathlib import Path

from danaus.actor import Actor
from danaus.actor import agent_messages as talk
from danaus.actor.contexts import ProcessInfo
from danaus.actor.process_messages import CODEC, SpawnActor
from danaus.actor.runtime import Runtime
from danaus.wire.address import Address
from danaus.wire.codec import own, pack
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions

LIMIT_S = 10.0


async def until_located(folder: Path, first: Secret) -> talk.ToAgent:
    """Have a worker of the first job spawn an actor; return what its agent is asked then."""
    asked: asyncio.Future[talk.ToAgent] = asyncio.get_running_loop().create_future()

    async def serve(session: Session) -> None:
        async for parts in session:
            message = talk.TO_AGENT.decode(parts[0], session.peer)
            if isinstance(message, talk.LocateProcess):
                asked.set_result(message)

    agent = await serve_sessions(Address.unix(folder / "agent"), first, serve)
    hello = talk.HELLO.encode(talk.Hello("host0/w/0#0", "", str(agent.address)))
    worker = await open_session(Address.unix(folder / "first"), first, hello)
    try:
        order = SpawnActor(1, "mesh", "child", 0, (), ())
        worker.send([CODEC.encode(order), *own(pack((Actor, (), {})))])
        async with asyncio.timeout(LIMIT_S):
            return await asked
    finally:
        await worker.close()
        await agent.close()


def test_the_owner_of_an_actor_is_watched_in_its_own_job(tmp_path: Path) -> None:
    runtime, first = Runtime(ProcessInfo("controller/1/0#0")), Secret.generate()
    try:
        runtime.connections.join(first, Address.unix(tmp_path / "first"))
        runtime.connections.join(Secret.generate(), Address.unix(tmp_path / "second"))
        located = asyncio.run(until_located(tmp_path, first))
    finally:
        runtime.shut_down(LIMIT_S)
    assert located == talk.LocateProcess("host0/w/0#0")
