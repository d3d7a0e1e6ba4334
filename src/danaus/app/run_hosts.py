"""The hosts of a run: where each replica is started, and what becomes of one that is lost.

Owns the job that the hosts come from (this machine's, or hosts that wait to be joined), which
replica lives where, and the waiting for a host that is away.  Replicas are started by
``replica_keeper``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from danaus.actor.attaching import HostTerms
from danaus.actor.failure import MeshFailure
from danaus.actor.mesh import HostMesh
from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.core.errors import AddressRefused, SupervisionError
from danaus.core.journal import Journal
from danaus.job.attached import AttachedJob
from danaus.job.local import LocalJob
from danaus.wire.address import Address
from danaus.wire.routes import host_to_bind

_TRY_EVERY_S = 1.0
_SAY_EVERY_S = 30.0


class RunHosts:
    """Give each replica a host.

    Args:
        folder: The run's folder, held by this process.
        config: Which hosts, and how long one is waited for.
        journal: Where hosts that come and go are written.
        preload: What nurseries import before they fork workers.
    """

    def __init__(
        self, folder: RunFolder, config: RunConfig, journal: Journal, *, preload: Sequence[str]
    ) -> None:
        self._folder, self._config, self._journal = folder, config, journal
        self._job = _job(folder, config, tuple(preload), on_cut_off=self._record_cut)
        self._size = len(config.hosts) or config.replicas
        self._lost: dict[int, float] = {}
        self._turns = tuple(asyncio.Lock() for _ in range(self._size))
        self._placed: dict[int, int] = {}

    async def start(self) -> None:
        """Start the hosts, or join them.

        Raises:
            ConfigError: Not all can be had: which not, and why.
        """
        await asyncio.to_thread(self._job.apply)
        self._save_addresses()
        for rank in range(self._size if self._config.hosts else 0):
            self._record_joined(rank)

    async def end(self) -> None:
        """End all that was started on them."""
        await asyncio.to_thread(self._job.kill)

    def failed(self, failure: MeshFailure) -> None:
        """Hear of a failure: a host may be lost with it."""
        if failure.kind != "host_lost":
            return
        for rank in sorted({_host_of(each) for each in failure.process_ids}):
            if rank not in self._lost:
                self._lost[rank] = time.monotonic()
                self._journal.record(Event.HOST_LOST, host=self._name(rank), reason=failure.reason)

    def agent_address(self, place: int) -> Address:
        """Return where the agent of a replica's host listens."""
        rank = self._placed.get(place, place % self._size)
        return Address.parse(self._job.state().hosts.hosts[rank].agent_address)

    async def host(self, place: int, stopping: asyncio.Event) -> HostMesh:
        """Return the host of a replica; one that was lost is begun anew, or waited for.

        Args:
            place: The replica's number.
            stopping: Set when it is not wanted any more.

        Raises:
            SupervisionError: It is not wanted any more.
            DanausError: A host of this machine cannot be started.
        """
        rank = self._placed.setdefault(place, place % self._size)
        said_at = 0.0
        while not stopping.is_set():
            try:
                return await self._ready(rank)
            except AddressRefused as refused:
                if time.monotonic() - said_at >= _SAY_EVERY_S:
                    said_at = time.monotonic()
                    self._record_waiting(place, rank, refused)
            rank = self._placed[place] = self._another(rank)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _TRY_EVERY_S)
        raise SupervisionError(self._config.replica_ids[place], "it was stopped")

    async def _ready(self, rank: int) -> HostMesh:
        async with self._turns[rank]:
            if rank not in self._lost:
                return self._job.state().hosts.slice(hosts=rank)
            host = await asyncio.to_thread(self._job.replace, "hosts", rank)
            away_s = time.monotonic() - self._lost.pop(rank)
            self._save_addresses()
            if self._config.hosts:
                self._record_joined(rank, away_s)
            return host

    def _another(self, rank: int) -> int:
        """Return the host to try next: another one, once this is away for too long (H-4)."""
        limit_s = self._config.host_wait_s
        living = [each for each in range(self._size) if each not in self._lost]
        away_s = time.monotonic() - self._lost.get(rank, time.monotonic())
        if limit_s is None or away_s < limit_s or not living:
            return rank
        used = list(self._placed.values())
        return min(living, key=used.count)

    # -- what is written down ------------------------------------------------------------------

    def _save_addresses(self) -> None:
        """Write down where the hosts' agents are, for whoever takes over this run (A-12)."""
        hosts = {host.name: host.agent_address for host in self._job.state().hosts.hosts}
        # A pid of another machine means nothing here.
        pids = {} if self._config.hosts else self._job.agent_pids()
        self._folder.save_addresses(agents=hosts, agent_pids=pids)

    def _name(self, rank: int) -> str:
        where = f" at {self._config.hosts[rank]}" if self._config.hosts else ""
        return f"host{rank}{where}"

    def _record_joined(self, rank: int, away_s: float = 0.0) -> None:
        host = self._job.state().hosts.hosts[rank]
        self._journal.record(
            Event.HOST_JOINED,
            host=self._name(rank),
            agent_address=host.agent_address,
            agent_pid=self._job.agent_pids().get(host.name, 0),
            away_s=round(away_s, 3),
        )

    def _record_cut(self, cut_off: bool) -> None:
        event = Event.CUT_OFF if cut_off else Event.REACHED_AGAIN
        self._journal.record(event, hosts=self._config.hosts)

    def _record_waiting(self, place: int, rank: int, refused: AddressRefused) -> None:
        away_s = time.monotonic() - self._lost.get(rank, time.monotonic())
        self._journal.record(
            Event.HOST_WAITED_FOR,
            replica=self._config.replica_ids[place],
            host=self._name(rank),
            away_s=round(away_s, 3),
            reason=refused.why,
        )


def _job(
    folder: RunFolder,
    config: RunConfig,
    preload: tuple[str, ...],
    *,
    on_cut_off: Callable[[bool], None],
) -> LocalJob | AttachedJob:
    heartbeat_limit_s = config.quorum.heartbeat_limit_s
    if config.hosts:
        terms = HostTerms(
            config.shared_secret,
            job_secret_path=folder.secret_path,
            run_dir=folder.path,
            preload=preload,
            detached=config.detached,
            alone_limit_s=config.alone_limit_s,
            bind=config.bind,
            heartbeat_limit_s=heartbeat_limit_s,
        )
        return AttachedJob(config.hosts, terms, on_cut_off=on_cut_off)
    job = LocalJob(
        num_hosts=config.replicas,
        run_dir=folder.path,
        sockets=folder.sockets(),
        secret_path=folder.secret_path,
        preload=preload,
        detached=config.detached,
    )
    job.heartbeat_limit_s = heartbeat_limit_s
    job.bind = Address.tcp(_bound(config), 0) if config.bind else None
    return job


def _bound(config: RunConfig) -> str:
    peers = [Address.parse(each) for each in config.hosts] or [Address.tcp("127.0.0.1", 0)]
    return host_to_bind(peers, config.bind)


def bind_of(config: RunConfig) -> str:
    """Return the host at which what the whole run dials listens; empty: a unix socket.

    Raises:
        AddressRefused: There is no route to a host, or no such interface.
    """
    return _bound(config) if config.hosts or config.bind else ""


def _host_of(process_id: str) -> int:
    """Return the place of the host that a process id names: ``host2/...`` is 2."""
    return int(process_id.partition("/")[0].removeprefix("host"))
