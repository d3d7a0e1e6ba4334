"""Hosts that wait to be joined, from the controller's side: all those of one job.

Owns one session with each waiting host for as long as the job lasts (``attached_host``).  That a
host's agent lives is known from the session with the agent itself (``agent_link``).
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Sequence
from pathlib import Path

from danaus.actor.adopting import Takeover
from danaus.actor.agent_link import Patience
from danaus.actor.attached_host import START_LIMIT_S, AttachedHost, HostTerms
from danaus.actor.future import Future
from danaus.actor.here import shutdown_context
from danaus.actor.identity import HostRef, check_name
from danaus.actor.mesh import HostMesh
from danaus.actor.process_runtime import get_runtime
from danaus.actor.spelled_address import address_of
from danaus.core.errors import AddressRefused, ConfigError
from danaus.core.extent import Extent
from danaus.wire.address import Address
from danaus.wire.looking import look_for
from danaus.wire.routes import host_to_bind

_JOIN_LIMIT_S = 10.0
_AGAIN_LIMIT_S = 3.0
_SPARE_S = 5.0
_LOOK_S = 1.0


class AttachedHosts:
    """All hosts of one job.

    Args:
        addresses: Where they wait.
        terms: What is asked of them.
        name: Of the mesh: with the rank in it, the name of a host in process ids.
        takeover: This controller's turn, where the job outlives controllers.

    Attributes:
        missing: Why a host could not be joined, by rank, where others could whose work was adopted.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        terms: HostTerms,
        *,
        name: str = "host",
        takeover: Takeover | None = None,
    ) -> None:
        self._runtime, self._terms = get_runtime(), terms
        self._takeover = takeover
        self.missing: dict[int, str] = {}
        self._kept: set[str] = set()
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
        host = host_to_bind([each.route for each in self._hosts], terms.bind)
        connections = self._runtime.connections
        bind = Address.tcp(host, 0)
        patience = Patience(terms.heartbeat_limit_s, terms.alone_limit_s, self._cut_off)
        takeover = self._takeover
        self._job = connections.join(
            terms.job_secret, bind, patience, generation=takeover.generation if takeover else 0
        )
        if takeover is not None:
            takeover.begin(self._job)
        connections.on_leave(self._job, self._leave_all)
        limit_s = _JOIN_LIMIT_S + START_LIMIT_S + _SPARE_S
        failed: dict[int, str] = self._runtime.io.run(self._join_all(), limit_s)
        adopts = any(host.goes_on for host in self._hosts)
        if failed and not adopts:
            self._leave(nothing_is_left=False)
            raise ConfigError(
                what=f"{len(failed)} of {len(self._hosts)} hosts cannot be joined",
                needed="; ".join(failed.values()),
                to_do="start danaus host --listen ADDRESS there, with the same secret file",
            )
        self.missing = failed
        self._see_what_is_left()
        return self.refs

    async def _join_all(self) -> dict[int, str]:
        known = self._takeover.hosts if self._takeover is not None else {}
        outcomes = await asyncio.gather(
            *(host.join(_JOIN_LIMIT_S, adopt=host.name in known) for host in self._hosts),
            return_exceptions=True,
        )
        failed = {}
        for rank, outcome in enumerate(outcomes):
            if isinstance(outcome, AddressRefused):
                failed[rank] = f"{outcome.address}: {outcome.why}"
                self._hosts[rank].assume(known)
            elif isinstance(outcome, BaseException):
                raise outcome
        return failed

    def _see_what_is_left(self) -> None:
        """Ask the agents that go on what lives there; who does not answer begins anew."""
        if self._takeover is None:
            return
        asked = [host.ref for host in self._hosts if host.goes_on]
        silent = {ref.name for ref in self._takeover.ask(asked)}
        for rank, host in enumerate(self._hosts):
            if host.name in silent:
                self.join_again(rank)
            elif rank not in self.missing:
                self._takeover.hold(host.held)

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
        limit_s = _AGAIN_LIMIT_S + START_LIMIT_S + _SPARE_S
        ref: HostRef = self._runtime.io.run(joining, limit_s)
        if self._takeover is not None:
            self._takeover.hold(self._hosts[rank].held)
        return ref

    def leave(self, *, keep_left: bool = False) -> None:
        """Have every host that is reached end all that it has of this job; safe to call twice.

        Args:
            keep_left: But not what an earlier controller has left.
        """
        kept = [host for host in self._hosts if keep_left and host.goes_on]
        self._kept.update(host.name for host in kept)
        self._leave(nothing_is_left=not kept)

    def _leave(self, *, nothing_is_left: bool) -> None:
        job, self._job = self._job, ""
        if job:
            self._runtime.connections.leave(job)
        takeover, self._takeover = self._takeover, None
        if takeover is not None:
            takeover.end(nothing_is_left=nothing_is_left)

    async def _leave_all(self) -> None:
        for ref in self.refs:
            self._runtime.connections.fences.pop(ref.agent_address, None)
            self._runtime.connections.releases.pop(ref.agent_address, None)
        await asyncio.gather(
            *(
                host.hang_up() if host.name in self._kept else host.leave("its program has left")
                for host in self._hosts
            )
        )


def attach_to_workers(
    workers: Sequence[str | Future[str]],
    secret: Path | str,
    *,
    name: str = "host",
    bind: str = "",
    preload: Sequence[str] = (),
) -> HostMesh:
    """Join hosts that wait (``danaus host``, ``run_worker_loop_forever``).

    They wait again once this program has ended, or has called ``shutdown_context()``.

    Args:
        workers: Their addresses, as in ``tcp:10.0.0.7:4500``, or futures of them.
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
    addresses = [address_of(each.get() if isinstance(each, Future) else each) for each in workers]
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
    """Join one host that waits; all else is as with ``attach_to_workers``.

    Args:
        worker: Its address.
        secret: File of the secret that it holds too.
        name: Of the mesh.
        bind: As of ``attach_to_workers``.
        preload: As of ``attach_to_workers``.

    Returns:
        The host; its axis has one place.

    Raises:
        ConfigError: It could not be joined.
        AddressRefused: The address is none, or there is no route to it.
    """
    return attach_to_workers([worker], secret, name=name, bind=bind, preload=preload)
