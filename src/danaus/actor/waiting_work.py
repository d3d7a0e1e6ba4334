"""The agent that a waiting host runs for the job that has joined it.

Owns its beginning and its end, one after the other: what an earlier job or an earlier life of the
same job has here is gone before the next begins.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from danaus.actor import procfs
from danaus.actor.agent_messages import TO_AGENT, EndUnattended
from danaus.actor.identity import job_of
from danaus.actor.local_agent import HostOptions, LocalAgent
from danaus.actor.waiting_messages import LOOPBACK, HostJoined, JoinHost
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError
from danaus.core.process_descriptor import open_process
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import open_session

_READY_LIMIT_S = 30.0
_END_LIMIT_S = 5.0


@dataclass(frozen=True)
class HostPlaces:
    """Where a waiting host keeps its own things, and where it is reached.

    Args:
        name: Of the host, for people.
        listen: Where it listens.
        folder: Private folder on its own disk.
        sockets: Private folder with a short path, for unix sockets.
        secret_path: File of the hosts' secret.
    """

    name: str
    listen: Address
    folder: Path
    sockets: Path
    secret_path: Path


class HostWork:
    """Run at most one agent.

    Args:
        places: The host's.
        on_gone: Called with the address of an agent that ended by itself, and how.
    """

    def __init__(self, places: HostPlaces, on_gone: Callable[[str, str], None]) -> None:
        self._places, self._on_gone = places, on_gone
        self._turn = asyncio.Lock()
        self._agent: LocalAgent | None = None
        self._descriptor = -1
        self._secret_path = places.secret_path

    async def begin(self, order: JoinHost) -> HostJoined:
        """End what runs, then start an agent as it is ordered.

        Raises:
            ConfigError: The agent did not start, or this host lacks what the job needs.
            DeadlinePassed: The agent did not start in time.
        """
        async with self._turn:
            await self._end()
            try:
                return await self._start(order, order.port)
            except ConfigError:
                await self._end()
                if not order.port:
                    raise
                return await self._start(order, 0)  # its old port may be another's by now

    async def keep(self, order: JoinHost) -> HostJoined:
        """Let the agent that lives go on; where none does, ``begin``.

        Raises:
            ConfigError: As ``begin`` does.
            DeadlinePassed: As ``begin`` does.
        """
        agent = self._agent
        if agent is None or not agent.is_alive or agent.host.job != order.job:
            return await self.begin(order)
        return HostJoined(self._places.name, agent.host.agent_address, agent.pid, goes_on=True)

    async def end(self) -> None:
        """End the agent, its nursery and all workers, at once."""
        async with self._turn:
            await self._end()

    def kill(self, pid: int) -> bool:
        """Kill the agent if it is this one; its end is told like any other."""
        agent = self._agent
        if agent is None or agent.pid != pid or not agent.is_alive:
            return False
        agent.kill()
        return True

    def ask_to_end(self) -> bool:
        """Have the agent end once its workers have ended by themselves; false: there is none."""
        agent = self._agent
        if agent is None or not agent.is_alive:
            return False
        agent.ask_to_end()
        return True

    async def let_end(self) -> None:
        """Have the agent end once nobody works there.

        Raises:
            DanausError: It cannot be told.
        """
        if self._agent is None:
            return
        secret = Secret.load(self._secret_path)
        session = await open_session(Address.parse(self._agent.host.agent_address), secret)
        session.send([TO_AGENT.encode(EndUnattended())])
        await session.close()

    # -- one agent -----------------------------------------------------------------------------

    async def _start(self, order: JoinHost, port: int) -> HostJoined:
        agent = self._agent = LocalAgent(order.host, self._options(order, port))
        ready_fd = agent.launch()
        await asyncio.to_thread(_await_ready, agent, ready_fd)
        self._watch(agent)
        return HostJoined(self._places.name, agent.host.agent_address, agent.pid)

    def _options(self, order: JoinHost, port: int) -> HostOptions:
        places = self._places
        run_dir = Path(order.run_dir) if order.run_dir else places.folder
        self._secret_path = Path(order.secret_path) if order.secret_path else places.secret_path
        shared = "the run folder must lie on a file system that all hosts of the run share"
        if not run_dir.is_dir():
            raise ConfigError(what=f"there is no folder {run_dir} on {places.name}", needed=shared)
        if job_of(Secret.load(self._secret_path)) != order.job:
            raise ConfigError(
                what=f"{self._secret_path} on {places.name} is not this job's secret", needed=shared
            )
        wildcard = places.listen.is_wildcard
        host = Address.parse(order.dialled).host if wildcard else places.listen.host or LOOPBACK
        return HostOptions(
            run_dir,
            places.sockets,
            self._secret_path,
            order.preload,
            bind=Address.tcp(host, port),
            folder=places.folder / "agents",
            lost_limit_s=order.alone_limit_s,
        )

    async def _end(self) -> None:
        agent, self._agent = self._agent, None
        self._unwatch()
        if agent is not None:
            agent.kill()
            await asyncio.to_thread(agent.wait, _END_LIMIT_S)
            agent.release()

    # -- its end -------------------------------------------------------------------------------

    def _watch(self, agent: LocalAgent) -> None:
        self._descriptor = open_process(agent.pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended, agent)

    def _unwatch(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _ended(self, agent: LocalAgent) -> None:
        self._unwatch()
        agent.wait(_END_LIMIT_S)
        code = agent.exit_code
        how = "nobody knows how" if code is None else procfs.how_ended(code)
        self._on_gone(agent.host.agent_address, how)


def _await_ready(agent: LocalAgent, ready_fd: int) -> None:
    try:
        agent.await_ready(ready_fd, Deadline.after(_READY_LIMIT_S))
    finally:
        os.close(ready_fd)
