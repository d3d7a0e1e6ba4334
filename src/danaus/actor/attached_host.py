"""One host that waits to be joined, from the controller's side: joining, losing, joining again.

Owns ``HostTerms``, what a job asks of its hosts, and ``AttachedHost``, one session with one host.

Invariants:
    Q-7: to join a host again ends what it still has of this job before anything is started there,
    unless a later controller of the same job joins it, to adopt what lives (A-12).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from danaus.actor.holdings import HostHeld
from danaus.actor.identity import HostRef, job_of
from danaus.actor.runtime import Runtime
from danaus.actor.waiting_host import KEPT_S
from danaus.actor.waiting_messages import (
    FROM_HOST,
    LOOPBACK,
    TO_HOST,
    AgentEnded,
    HostJoined,
    HostRefused,
    JoinHost,
    KillAgent,
    LeaveHost,
    ToHost,
)
from danaus.core.errors import (
    AddressRefused,
    ChannelClosed,
    ConfigError,
    DanausError,
    DeadlinePassed,
    HandshakeRefused,
)
from danaus.wire.address import Address, advertised
from danaus.wire.looking import look_for
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session

HEARTBEAT_LIMIT_S = 20.0
START_LIMIT_S = 60.0
_LEAVE_LIMIT_S = 3.0


@dataclass(frozen=True)
class HostTerms:
    """What a job asks of each host that it joins.

    Args:
        secret_path: File of the hosts' secret.
        job_secret_path: File of the job's secret, which the hosts see too; None: the hosts'.
        run_dir: Folder of the run, which the hosts see too; None: each host has its own.
        preload: Modules that each nursery imports before it forks workers.
        detached: Go on without this program.
        alone_limit_s: Seconds to go on without being able to tell whether this program lives.
        bind: Interface, host name or address to listen at; empty: chosen by the route (W-4).
        heartbeat_limit_s: A host whose agent is silent for so many seconds, and then does not
            answer either, is lost (P-2).
    """

    secret_path: Path
    job_secret_path: Path | None = None
    run_dir: Path | None = None
    preload: tuple[str, ...] = ()
    detached: bool = False
    alone_limit_s: float = 600.0
    bind: str = ""
    heartbeat_limit_s: float = HEARTBEAT_LIMIT_S

    @property
    def job_secret(self) -> Secret:
        """The job's secret."""
        return Secret.load(self.job_secret_path or self.secret_path)


class AttachedHost:
    """One waiting host; on the connections' loop.

    Args:
        name: Of the host in process ids.
        address: Where it waits.
        terms: What is asked of it.
        runtime: This process's.
    """

    def __init__(self, name: str, address: Address, *, terms: HostTerms, runtime: Runtime) -> None:
        self.name, self.address = name, address
        self._terms, self._runtime = terms, runtime
        self._session: Session | None = None
        self.ref = HostRef(name, "", job_of(terms.job_secret))
        self.agent_pid = 0
        self.goes_on = False

    async def join(self, limit_s: float, *, adopt: bool = False) -> HostRef:
        """Join the host, anew if it was joined before; what it had of this job is ended.

        Args:
            limit_s: How long to try to reach it.
            adopt: Unless its agent lives: then that goes on (``goes_on`` tells).

        Raises:
            AddressRefused: Which address was tried, and why it failed.
        """
        await self.hang_up()
        try:
            session = await self._open(limit_s)
            self._session = session
            session.send([TO_HOST.encode(self._order(adopt))])
            async with asyncio.timeout(START_LIMIT_S):
                joined = await self._joined(session)
        except (DanausError, TimeoutError) as error:
            await self.hang_up()
            found = await look_for(self.address) if isinstance(error, TimeoutError) else "there"
            why = _why_not(error) if found == "there" else "its machine does not answer"
            raise AddressRefused(str(self.address), why) from error
        session.on_message = self._arrived
        return self._take(joined)

    @property
    def route(self) -> Address:
        """Where the way to its machine leads: with a socket file it is this one."""
        return self.address if self.address.scheme == "tcp" else Address.tcp(LOOPBACK, 0)

    @property
    def held(self) -> HostHeld:
        """What a later controller must know of the host."""
        return HostHeld(self.name, self.ref.agent_address, self.agent_pid)

    def assume(self, known: Mapping[str, HostHeld]) -> None:
        """Refer to the host, which cannot be joined now, as an earlier controller did."""
        if self.name in known:
            self.ref = HostRef(self.name, known[self.name].agent_address, self.ref.job)

    async def leave(self, reason: str) -> None:
        """Have the host end all that it has of this job, and wait to be joined again."""
        session = self._session
        if session is None or not session.is_connected:
            await self.hang_up()
            return
        session.on_message = None
        with contextlib.suppress(ChannelClosed, TimeoutError):
            session.send([TO_HOST.encode(LeaveHost(reason))])
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                await session.receive()
        await self.hang_up()

    async def _open(self, limit_s: float) -> Session:
        return await open_session(
            self.address,
            Secret.load(self._terms.secret_path),
            lost_limit_s=KEPT_S,
            open_limit_s=limit_s,
        )

    def _order(self, adopt: bool) -> JoinHost:
        terms, runtime = self._terms, self._runtime
        listening = Address.parse(runtime.connections.address_of(self.ref.job))
        known = self.ref.agent_address
        where = f" for run {terms.run_dir}" if terms.run_dir is not None else ""
        return JoinHost(
            job=self.ref.job,
            who=f"{runtime.info.process_id.rpartition('/')[0]}{where}",
            host=self.name,
            dialled=str(self.address),
            controller=str(advertised(listening, self.route)),
            run_dir=str(terms.run_dir or ""),
            secret_path=str(terms.job_secret_path or ""),
            preload=terms.preload,
            port=Address.parse(known).port if known else 0,
            detached=terms.detached,
            alone_limit_s=terms.alone_limit_s,
            adopt=adopt,
        )

    async def _joined(self, session: Session) -> HostJoined:
        while True:
            parts = await session.receive()
            match FROM_HOST.decode(parts[0], session.peer):
                case HostJoined() as joined:
                    return joined
                case HostRefused(why):
                    raise ConfigError(what=why)

    def _take(self, joined: HostJoined) -> HostRef:
        connections = self._runtime.connections
        if self.ref.agent_address:
            connections.forget_host(self.ref)
            connections.fences.pop(self.ref.agent_address, None)
            connections.releases.pop(self.ref.agent_address, None)
        self.ref = HostRef(self.name, joined.agent_address, self.ref.job)
        self.agent_pid, self.goes_on = joined.agent_pid, joined.goes_on
        fence = KillAgent(joined.agent_pid, "it does not answer its controller")
        connections.fences[self.ref.agent_address] = functools.partial(self._say, fence)
        connections.releases[self.ref.agent_address] = self._release
        return self.ref

    def _arrived(self, parts: list[bytearray]) -> None:
        message = FROM_HOST.decode(parts[0], str(self.address))
        if isinstance(message, AgentEnded) and message.agent_address == self.ref.agent_address:
            self._runtime.connections.lose_host(self.ref, f"its agent ended: {message.how}")

    def _say(self, message: ToHost) -> None:
        if self._session is not None:
            with contextlib.suppress(ChannelClosed):
                self._session.send([TO_HOST.encode(message)])

    def _release(self, reason: str) -> None:
        """Have the host wait for others: what it had of this job was shut down."""
        self._say(LeaveHost(reason))

    async def hang_up(self) -> None:
        """End the session; what the host has goes on for as long as it was told to without one."""
        session, self._session = self._session, None
        if session is not None:
            session.end("this side is done with it", clean=True)
            await session.close()


def _why_not(error: Exception) -> str:
    match error:
        case ConfigError():
            return str(error)
        case HandshakeRefused():
            return f"it does not hold the same secret ({error.why})"
        case AddressRefused(why=why) | ChannelClosed(why=why):
            return why
        case DeadlinePassed() | TimeoutError():
            return "it accepts connections and does not answer"
    return str(error)
