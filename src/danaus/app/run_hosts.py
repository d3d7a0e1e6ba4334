"""The hosts of a run: where each replica is started, and what becomes of one that is lost.

Owns the job that the hosts come from (this machine's, or hosts that wait to be joined), which
replica lives where, and the waiting for a host that is away.  Replicas are started by
``replica_keeper``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

from danaus.actor.attached_host import HostTerms
from danaus.actor.failure import MeshFailure
from danaus.actor.identity import HostRef
from danaus.actor.mesh import HostMesh
from danaus.actor.process_runtime import get_runtime
from danaus.app.crew_plan import next_host
from danaus.app.events import Event
from danaus.app.inheritance import Inheritance, host_place
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.core.errors import AddressRefused, ConfigError, SupervisionError
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
        adopt: Whether what an earlier controller has left goes on; else it is ended.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        journal: Journal,
        *,
        preload: Sequence[str],
        adopt: bool = False,
    ) -> None:
        self._folder, self._config, self._journal = folder, config, journal
        self._job = _job(folder, config, tuple(preload), on_cut_off=self._record_cut)
        self._job.adopts = adopt
        self._size = len(config.hosts) or config.replicas + config.spares
        self._lost: dict[int, float] = {}
        self._turns = [asyncio.Lock() for _ in range(self._size)]
        self._placed: dict[int, int] = {}
        self._leaving: set[int] = set()
        self._closed: set[int] = set()
        self._spares: dict[str, int] = {}
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.inheritance = Inheritance()
        """What an earlier controller has left on them; known once they were started."""

    async def start(self) -> None:
        """Start the hosts, or join them; those of an earlier controller that live are adopted.

        Raises:
            ConfigError: Not all can be had: which not, and why.
        """
        self._loop = asyncio.get_running_loop()
        get_runtime().on_host_news.append(self._hear_there)
        await asyncio.to_thread(self._job.apply)
        self._take_over()
        self._save_addresses()
        for rank in range(self._size if self._config.hosts else 0):
            if rank in self._job.missing:
                self._lose(rank, f"{self._name(rank)} is lost: {self._job.missing[rank]}")
            else:
                self._record_joined(rank)

    def _take_over(self) -> None:
        """See what is left, and where; on this machine there may be more hosts than were asked."""
        if self._job.takeover is not None:
            self._job.takeover.log.on_trouble = self._record_trouble
        self.inheritance = Inheritance(self._job.takeover)
        more = len(self._job.state().hosts.hosts) - self._size
        self._turns += [asyncio.Lock() for _ in range(more)]
        self._size += more
        for name, rank in self.inheritance.hosts.items():
            kind, _, number = name.rpartition("-")
            if kind == "replica" and number.isdigit():  # else it is a rank, started alone
                self._placed[int(number)] = rank

    async def grow(self, num_replicas: int) -> None:
        """Have room for so many replicas: on this machine each has a host of its own.

        Raises:
            ConfigError: A host did not start.
        """
        more = num_replicas - self._size
        if more > 0 and isinstance(self._job, LocalJob):
            await asyncio.to_thread(self._job.grow, "hosts", more)
            self._turns += [asyncio.Lock() for _ in range(more)]
            self._size += more
            self._save_addresses()

    async def end(self, *, keep_left: bool = False) -> None:
        """End all that runs on them; if asked, not what an earlier controller has left."""
        with contextlib.suppress(ValueError):
            get_runtime().on_host_news.remove(self._hear_there)
        await asyncio.to_thread(self._job.let_go if keep_left else self._job.kill)

    def failed(self, failure: MeshFailure) -> None:
        """Hear of a failure: a host may be lost with it."""
        if failure.kind != "host_lost":
            return
        for rank in sorted({host_place(each) for each in failure.process_ids}):
            self._lose(rank, failure.reason)

    def _lose(self, rank: int, reason: str) -> None:
        if rank not in self._lost:
            self._lost[rank] = time.monotonic()
            self._journal.record(Event.HOST_LOST, host=self._name(rank), reason=reason)
        self._news.set()

    def _hear_there(self, host: HostRef, why: str, is_lost: bool) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._hear, host, why, is_lost)

    def _hear(self, host: HostRef, why: str, is_lost: bool) -> None:
        """Hear that a host ends once its replicas have left, or is lost."""
        rank = int(host.name.removeprefix("host"))
        if is_lost and rank in self._leaving:  # nothing of it is left that could fail with it
            self._lose(rank, why)
        elif not is_lost and rank not in self._leaving:
            self._leaving.add(rank)
            self._journal.record(Event.HOST_LEAVING, host=self._name(rank), reason=why)

    def agent_address(self, place: int) -> Address:
        """Return where the agent of a replica's host listens."""
        return self.agent_on(self.host_of(place))

    async def host(self, place: int, stopping: asyncio.Event) -> HostMesh:
        """Return the host of a replica; one that was lost is begun anew, or waited for.

        Args:
            place: The replica's number.
            stopping: Set when it is not wanted any more.

        Raises:
            SupervisionError: It is not wanted any more.
            DanausError: A host of this machine cannot be started.
        """
        rank = self.host_of(place)
        if rank in self._closed:
            rank = self._placed[place] = self._another(place)
        said_at = 0.0
        while not stopping.is_set():
            try:
                return await self._ready(rank)
            except AddressRefused as refused:
                if rank in self._lost and time.monotonic() - said_at >= _SAY_EVERY_S:
                    said_at = time.monotonic()
                    self._record_waiting(place, rank, refused)
            rank = self._placed[place] = self._another(place)
            await self._until_news(stopping)
        raise SupervisionError(f"replica-{place}", "it was stopped")

    async def spare_host(self, name: str, stopping: asyncio.Event) -> tuple[int, HostMesh]:
        """Return the host that has least to do, for a spare; wait until there is one.

        Raises:
            SupervisionError: It is not wanted any more.
            DanausError: A host of this machine cannot be started.
        """
        while not stopping.is_set():
            useless = self._leaving | self._closed
            ranks = [rank for rank in range(self._size) if rank not in useless]
            for rank in sorted(ranks, key=lambda r: (self._num_on(r), r in self._lost)):
                self._spares[name] = rank
                with contextlib.suppress(AddressRefused):
                    return rank, await self._ready(rank)
                del self._spares[name]
            await self._until_news(stopping)
        raise SupervisionError(name, "it was stopped")

    def keep_spare(self, name: str, rank: int) -> HostMesh:
        """Note that a spare lives on a host, as an earlier controller has left it."""
        self._spares[name] = rank
        return self.home(rank)

    def home(self, rank: int) -> HostMesh:
        """Return a host that something lives on."""
        return self._job.state().hosts.slice(hosts=rank)

    def move(self, place: int, spare: str) -> None:
        """Note that a replica lives where a spare did."""
        self._placed[place] = self._spares.pop(spare)

    def agent_on(self, rank: int) -> Address:
        """Return where the agent of a host listens."""
        return Address.parse(self._job.state().hosts.hosts[rank].agent_address)

    def _num_on(self, rank: int) -> int:
        return [*self._placed.values(), *self._spares.values()].count(rank)

    # -- which, and how many ---------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many hosts there are."""
        return self._size

    def host_of(self, place: int) -> int:
        """Return the host on which a replica lives, or will."""
        if place not in self._placed:
            load = self._load(place)
            free = [rank for rank in range(self._size) if load[rank] is not None]
            own = place % self._size
            crowded = place >= self._size and free
            self._placed[place] = min(free, key=lambda r: load[r] or 0) if crowded else own
        return self._placed[place]

    def rank_of(self, name: str) -> int:
        """Return which host is named, as in ``host1``.

        Raises:
            ConfigError: There is none.
        """
        digits = name.removeprefix("host")
        if not digits.isdigit() or int(digits) >= self._size:
            last = "host0" if self._size == 1 else f"host0 to host{self._size - 1}"
            raise ConfigError(f"there is no host {name!r}", f"this run has {last}")
        return int(digits)

    def num_empty(self, *, but: int) -> int:
        """Return how many hosts but one could take a replica and have none."""
        load = self._load(None)
        return sum(load[rank] == 0 for rank in range(self._size) if rank != but)

    def close(self, ranks: Iterable[int]) -> None:
        """Start nothing on these hosts any more."""
        self._closed.update(ranks)

    def open(self, rank: int) -> None:
        """Use a host again."""
        self._closed.discard(rank)

    async def restart(self, rank: int) -> None:
        """End all that runs on a host, and begin there anew: with the code that lies there now.

        Raises:
            DanausError: It cannot be begun.
        """
        async with self._turns[rank]:
            self._lost.setdefault(rank, time.monotonic())
        await self._ready(rank)

    def _load(self, place: int | None) -> tuple[int | None, ...]:
        """Return of each host how many others than this replica live there; None: it is of no
        use."""
        others = [each for other, each in self._placed.items() if other != place]
        useless = self._lost.keys() | self._leaving | self._closed
        ranks = range(self._size)
        return tuple(None if each in useless else others.count(each) for each in ranks)

    async def _ready(self, rank: int) -> HostMesh:
        async with self._turns[rank]:
            if rank not in self._lost and rank not in self._leaving:
                return self._job.state().hosts.slice(hosts=rank)
            if rank not in self._lost:
                raise AddressRefused(self._name(rank), "it was asked to end, and is about to")
            host = await asyncio.to_thread(self._job.replace, "hosts", rank)
            away_s = time.monotonic() - self._lost.pop(rank)
            self._leaving.discard(rank)
            self._save_addresses()
            if self._config.hosts:
                self._record_joined(rank, away_s)
            return host

    async def _until_news(self, stopping: asyncio.Event) -> None:
        """Wait until a host is lost, it is time to try again, or the event is set."""
        self._news.clear()
        waits = [asyncio.ensure_future(each.wait()) for each in (stopping, self._news)]
        try:
            await asyncio.wait(waits, timeout=_TRY_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _another(self, place: int) -> int:
        """Return the host to try next for a replica (H-4)."""
        rank, now = self._placed[place], time.monotonic()
        away_s = now - self._lost[rank] if rank in self._lost else None
        elsewhere = rank in self._leaving and bool(self._config.hosts)
        return next_host(
            rank,
            self._load(place),
            away_s=away_s,
            wait_s=self._config.host_wait_s,
            leaves=elsewhere or rank in self._closed,
        )

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

    def _record_trouble(self, reason: str) -> None:
        event = Event.HOLDINGS_UNWRITTEN if reason else Event.HOLDINGS_WRITTEN
        self._journal.record(event, **({"reason": reason} if reason else {}))

    def _record_cut(self, cut_off: bool) -> None:
        event = Event.CUT_OFF if cut_off else Event.REACHED_AGAIN
        self._journal.record(event, hosts=self._config.hosts)

    def _record_waiting(self, place: int, rank: int, refused: AddressRefused) -> None:
        away_s = time.monotonic() - self._lost.get(rank, time.monotonic())
        self._journal.record(
            Event.HOST_WAITED_FOR,
            replica=f"replica-{place}",
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
        num_hosts=config.replicas + config.spares,
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
