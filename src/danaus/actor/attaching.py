"""Hosts that wait to be joined, from the controller's side: joining, losing, joining again.

Owns one session with each waiting host for as long as the job lasts.  That a host's agent lives is
known from the session with the agent itself (``agent_link``).

Invariants:
    Q-7: to join a host again ends what it still has of this job before anything is started there.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from danaus.actor.agent_link import Patience
from danaus.actor.here import shutdown_context
from danaus.actor.identity import HostRef, check_name, job_of
from danaus.actor.mesh import HostMesh
from danaus.actor.process_runtime import get_runtime
from danaus.actor.runtime import Runtime
from danaus.actor.waiting_host import KEPT_S
from danaus.actor.waiting_messages import (
    FROM_HOST,
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
from danaus.core.extent import Extent
from danaus.wire.address import Address, advertised
from danaus.wire.looking import look_for
from danaus.wire.routes import host_to_bind
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session

HEARTBEAT_LIMIT_S = 20.0
_JOIN_LIMIT_S = 10.0
_AGAIN_LIMIT_S = 3.0
_START_LIMIT_S = 60.0
_LEAVE_LIMIT_S = 3.0
_SPARE_S = 5.0
_LOOK_S = 1.0


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

    async def join(self, limit_s: float) -> HostRef:
        """Join the host, anew if it was joined before; what it had of this job is ended.

        Args:
            limit_s: How long to try to reach it.

        Raises:
            AddressRefused: Which address was tried, and why it failed.
        """
        await self._hang_up()
        try:
            session = await self._open(limit_s)
            self._session = session
            session.send([TO_HOST.encode(self._order())])
            async with asyncio.timeout(_START_LIMIT_S):
                joined = await self._joined(session)
        except (DanausError, TimeoutError) as error:
            await self._hang_up()
            found = await look_for(self.address) if isinstance(error, TimeoutError) else "there"
            why = _why_not(error) if found == "there" else "its machine does not answer"
            raise AddressRefused(str(self.address), why) from error
        session.on_message = self._arrived
        return self._take(joined)

    async def leave(self, reason: str) -> None:
        """Have the host end all that it has of this job, and wait to be joined again."""
        session = self._session
        if session is None or not session.is_connected:
            await self._hang_up()
            return
        session.on_message = None
        with contextlib.suppress(ChannelClosed, TimeoutError):
            session.send([TO_HOST.encode(LeaveHost(reason))])
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                await session.receive()
        await self._hang_up()

    async def _open(self, limit_s: float) -> Session:
        return await open_session(
            self.address,
            Secret.load(self._terms.secret_path),
            lost_limit_s=KEPT_S,
            open_limit_s=limit_s,
        )

    def _order(self) -> JoinHost:
        terms, runtime = self._terms, self._runtime
        listening = Address.parse(runtime.connections.address_of(self.ref.job))
        known = self.ref.agent_address
        where = f" for run {terms.run_dir}" if terms.run_dir is not None else ""
        return JoinHost(
            job=self.ref.job,
            who=f"{runtime.info.process_id.rpartition('/')[0]}{where}",
            host=self.name,
            dialled=str(self.address),
            controller=str(advertised(listening, self.address)),
            run_dir=str(terms.run_dir or ""),
            secret_path=str(terms.job_secret_path or ""),
            preload=terms.preload,
            port=Address.parse(known).port if known else 0,
            detached=terms.detached,
            alone_limit_s=terms.alone_limit_s,
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
        self.ref = HostRef(self.name, joined.agent_address, self.ref.job)
        self.agent_pid = joined.agent_pid
        fence = KillAgent(joined.agent_pid, "it does not answer its controller")
        connections.fences[self.ref.agent_address] = functools.partial(self._say, fence)
        return self.ref

    def _arrived(self, parts: list[bytearray]) -> None:
        message = FROM_HOST.decode(parts[0], str(self.address))
        if isinstance(message, AgentEnded) and message.agent_address == self.ref.agent_address:
            self._runtime.connections.lose_host(self.ref, f"its agent ended {message.how}")

    def _say(self, message: ToHost) -> None:
        if self._session is not None:
            with contextlib.suppress(ChannelClosed):
                self._session.send([TO_HOST.encode(message)])

    async def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.end("this side is done with it", clean=True)
            await session.close()


class AttachedHosts:
    """All hosts of one job.

    Args:
        addresses: Where they wait.
        terms: What is asked of them.
        name: Of the mesh: with the rank in it, the name of a host in process ids.
    """

    def __init__(
        self, addresses: Sequence[Address], terms: HostTerms, *, name: str = "host"
    ) -> None:
        self._runtime, self._terms = get_runtime(), terms
        self._hosts = tuple(
            AttachedHost(f"{name}{n}", address, terms=terms, runtime=self._runtime)
            for n, address in enumerate(addresses)
        )
        self._job = ""
        self._is_cut_off = False
        self.on_cut_off: Callable[[bool], None] = lambda _: None
        """Told when no machine of the job answers any more, and when one does again; on the
        connections' loop."""

    @property
    def refs(self) -> tuple[HostRef, ...]:
        """The hosts, by rank."""
        return tuple(host.ref for host in self._hosts)

    @property
    def agent_pids(self) -> dict[str, int]:
        """Pid of each host's agent on its own machine."""
        return {host.name: host.agent_pid for host in self._hosts}

    def join(self) -> tuple[HostRef, ...]:
        """Join every host, side by side.

        Raises:
            ConfigError: Not all could be joined: which not, and why.
            AddressRefused: There is no route to them, or the address to listen at is none of ours.
        """
        terms = self._terms
        host = host_to_bind([each.address for each in self._hosts], terms.bind)
        connections = self._runtime.connections
        bind = Address.tcp(host, 0)
        patience = Patience(terms.heartbeat_limit_s, terms.alone_limit_s, self._cut_off)
        self._job = connections.join(terms.job_secret, bind, patience)
        connections.on_leave(self._job, self._leave_all)
        limit_s = _JOIN_LIMIT_S + _START_LIMIT_S + _SPARE_S
        failed: list[str] = self._runtime.io.run(self._join_all(), limit_s)
        if failed:
            self.leave()
            raise ConfigError(
                what=f"{len(failed)} of {len(self._hosts)} hosts cannot be joined",
                needed="; ".join(failed),
                to_do="start danaus host --listen ADDRESS there, with the same secret file",
            )
        return self.refs

    async def _join_all(self) -> list[str]:
        outcomes = await asyncio.gather(
            *(host.join(_JOIN_LIMIT_S) for host in self._hosts), return_exceptions=True
        )
        failed = []
        for outcome in outcomes:
            if isinstance(outcome, AddressRefused):
                failed.append(f"{outcome.address}: {outcome.why}")
            elif isinstance(outcome, BaseException):
                raise outcome
        return failed

    async def _cut_off(self) -> bool:
        """Tell whether no machine of the job answers: then it is this one that is cut off."""
        # Every host's link asks, at much the same time.
        if not self._is_cut_off and not await self._reaches_anyone() and not self._is_cut_off:
            self._is_cut_off = True
            self.on_cut_off(True)
            self._runtime.io.tasks.start(self._wait_until_reached(), "waiting to be reached")
        return self._is_cut_off

    async def _wait_until_reached(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if await self._reaches_anyone():
                break
        self.on_cut_off(False)
        # Not all ways are mended at one moment: each agent has its time to be heard again.
        await asyncio.sleep(self._terms.heartbeat_limit_s)
        self._is_cut_off = False

    async def _reaches_anyone(self) -> bool:
        looks = await asyncio.gather(*(look_for(host.address) for host in self._hosts))
        return any(found != "unknown" for found in looks)

    def join_again(self, rank: int) -> HostRef:
        """Join a host that was lost; references to processes that were there end.

        Raises:
            AddressRefused: Which address was tried, and why it failed.
        """
        joining = self._hosts[rank].join(_AGAIN_LIMIT_S)
        limit_s = _AGAIN_LIMIT_S + _START_LIMIT_S + _SPARE_S
        ref: HostRef = self._runtime.io.run(joining, limit_s)
        return ref

    def leave(self) -> None:
        """Have every host that is reached end all that it has of this job; safe to call twice."""
        job, self._job = self._job, ""
        if job:
            self._runtime.connections.leave(job)

    async def _leave_all(self) -> None:
        for ref in self.refs:
            self._runtime.connections.fences.pop(ref.agent_address, None)
        await asyncio.gather(*(host.leave("its program has left") for host in self._hosts))


def attach_to_workers(
    workers: Sequence[str],
    secret: Path | str,
    *,
    name: str = "host",
    bind: str = "",
    preload: Sequence[str] = (),
) -> HostMesh:
    """Join hosts that wait (``danaus host``, ``run_worker_loop_forever``).

    They wait again once this program has ended, or has called ``shutdown_context()``.

    Args:
        workers: Their addresses, as in ``tcp:10.0.0.7:4500``.
        secret: File of the secret that they hold too.
        name: Of the mesh; two meshes of one program need two names.
        bind: Interface, host name or address at which this program listens for them; empty:
            chosen by asking the route.
        preload: Modules that each host imports before it forks workers (``torch``).

    Returns:
        The hosts, on the axis ``hosts``.

    Raises:
        ConfigError: Not all could be joined: which not, and why.
        AddressRefused: An address is none, or there is no route to it.
    """
    addresses = [Address.parse(each) for each in workers]
    if not addresses:
        raise ConfigError(what="no hosts to attach to", needed="the address of at least one")
    terms = HostTerms(Path(secret).absolute(), preload=tuple(preload), bind=bind)
    atexit.register(shutdown_context)
    hosts = AttachedHosts(addresses, terms, name=check_name(name, "the name of a mesh")).join()
    return HostMesh(Extent(("hosts",), (len(hosts),)).region(), hosts)


def attach(
    worker: str,
    secret: Path | str,
    *,
    name: str = "host",
    bind: str = "",
    preload: Sequence[str] = (),
) -> HostMesh:
    """Join one host that waits, as ``attach_to_workers`` joins several; its axis has one place."""
    return attach_to_workers([worker], secret, name=name, bind=bind, preload=preload)


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
